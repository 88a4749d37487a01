"""One server's answers, checked: under load against unloaded, and against a reference's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from loadtests.harness.answers.agreement import Agreement, Answer, agreement
from loadtests.harness.answers.asking import Asking, Perplexity
from loadtests.harness.answers.questions import TEXT
from loadtests.harness.client.access import Access
from loadtests.harness.client.dialects.registry import DIALECTS
from loadtests.harness.run.target import Target


@dataclass(frozen=True, slots=True)
class Checked:
    """`under_load` compares with the same server's unloaded answers, `with_reference` with the reference's."""

    label: str
    model: str
    dtype: str | None  # the number format, from `/v1/engine`
    under_load: Agreement
    with_reference: Agreement | None
    perplexity: Perplexity | None


@dataclass(frozen=True, slots=True)
class Plan:
    """`tokens` is the most of one answer, `users` how many requests run at once under load."""

    prompts: Sequence[str]
    tokens: int
    users: int
    rounds: int


async def check(
    url: str,
    access: Access,
    label: str,
    model: str | None,
    plan: Plan,
    reference: Mapping[str, Answer] | None,
    say: Callable[[str], None],
) -> tuple[Checked, dict[str, Answer]]:
    """The result, and the unloaded answers. Raises `UnreachableServer` and `NoAnswer`."""
    with Target(url, access) as target:
        asked = target.model(model, DIALECTS["chat"])
        dtype = (target.engine() or {}).get("dtype")
        base = target.url
    async with Asking(base, access, asked, plan.tokens) as asking:
        say(f"{len(plan.prompts)} answers, one at a time")
        alone = await asking.alone(plan.prompts)
        say(f"the same under load, {plan.users} at once, in {plan.rounds} round{'s' * (plan.rounds != 1)}")
        loaded = await asking.together(plan.prompts, plan.users, plan.rounds)
        say("the likelihood of a given text")
        perplexity = await asking.perplexity(TEXT)
    compared = None if reference is None else agreement(reference, alone.items())
    return Checked(label, asked, dtype, agreement(alone, loaded), compared, perplexity), alone
