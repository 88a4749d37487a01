"""Settings that others make ineffective. They are refused, so that no run is believed to have used them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from enginebench.settings.schema import UserMistake, settings_of
from loadtests.harness.client.dialects.endpoints import DIALECTS
from loadtests.harness.scenario import Scenario


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """`settings` have none in a scenario where `when` holds; `words` say so after "has no effect"."""

    settings: tuple[str, ...]
    when: Callable[[Scenario], object]
    words: str


def _is_open(scenario: Scenario) -> bool:
    return bool(scenario.rate) or scenario.by == "rate" or (bool(scenario.trace) and not _searches(scenario))


def _searches(scenario: Scenario) -> bool:
    return scenario.by != "stages"


def _in_conversations(scenario: Scenario) -> bool:
    return scenario.turns.kind != "fixed" or scenario.turns.a > 1


def _in_all_classes(scenario: Scenario, setting: str) -> bool:
    return bool(scenario.classes) and all(getattr(one, setting) is not None for one in scenario.classes)


PLAN = ("stages", "rate", "stage_seconds", "stage_requests", "warm_up")
PROMPTS = ("prompt_tokens", "shared_prefix_tokens", "classes", "turns", "turn_tokens")
RULES = (
    WithoutEffect(("search_range",), lambda s: s.by == "growth", "with --by growth, which begins with one user"),
    WithoutEffect(("search_range", "search_seconds"), lambda s: not _searches(s), "without a search: --by"),
    WithoutEffect(PLAN, _searches, "in a search for capacity (--by), which chooses its loads"),
    WithoutEffect(
        ("trace",), lambda s: _searches(s) and s.by != "rate", "where users ask: it has arrivals, for --rate or alone"
    ),
    WithoutEffect(
        ("stages", "stage_seconds", "stage_requests"),
        lambda s: s.trace and not s.rate and not _searches(s),
        "with a trace that is played at its own times",
    ),
    WithoutEffect(
        ("stage_seconds",),
        lambda s: all(step.seconds is not None for step in s.rate or s.stages),
        "where every stage has a length of its own",
    ),
    WithoutEffect(
        ("arrivals",), lambda s: not (s.rate or s.by == "rate"), "without requests per second: --rate, or --by rate"
    ),
    WithoutEffect(
        ("think_time", "turns", "turn_tokens"),
        _is_open,
        "in an open loop, whose requests do not wait for one another",
    ),
    WithoutEffect(("turn_tokens",), lambda s: not _in_conversations(s), "without conversations: --turns"),
    WithoutEffect((*PROMPTS, "prompt_kind"), lambda s: s.dataset, "with --dataset, which has the prompts"),
    WithoutEffect(
        (*PROMPTS, "output_tokens", "dataset"), lambda s: s.trace, "with --trace, which has the lengths of its requests"
    ),
    WithoutEffect(
        ("prompt_tokens",),
        lambda s: len(s.prompt_tokens) == 1 and _in_all_classes(s, "prompt_tokens") and not _in_conversations(s),
        "where every class has a prompt= of its own",
    ),
    WithoutEffect(
        ("output_tokens",),
        lambda s: len(s.output_tokens) == 1 and _in_all_classes(s, "output_tokens"),
        "where every class has an output= of its own",
    ),
    WithoutEffect(("shared_prefix_tokens",), lambda s: s.prompt_kind == "ids", "with --prompt-kind ids"),
)


def check_effects(defaults: Scenario, scenario: Scenario, given: Collection[str]) -> None:
    """`scenario` is `defaults` with what was given. Raises `UserMistake` for a setting that was given in vain: one of
    the names in `given`, as typed, or on Locust's page, which sends all of them, one that differs."""
    flags = {one.name: one.flag for one in settings_of(Scenario)}
    for name, words in _in_vain(scenario):
        if name in given or getattr(scenario, name) != getattr(defaults, name):
            raise UserMistake(f"{flags[name]} has no effect {words}: leave it out.")


def _in_vain(scenario: Scenario) -> Iterator[tuple[str, str]]:
    for rule in RULES:
        if rule.when(scenario):
            yield from ((name, rule.words) for name in rule.settings)
    dialect = DIALECTS[scenario.endpoint]
    for option in scenario.sampling.options:
        if not dialect.takes(option):
            yield option, f"with --endpoint {scenario.endpoint}, whose API has no such option"
