"""Settings that other settings make ineffective. They are refused, so that no user believes they were used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from enginebench.settings.schema import UserMistake, settings_of
from loadtests.harness.client.dialects.endpoints import DIALECTS
from loadtests.harness.scenario import Scenario


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """`settings` have no effect in a scenario for which `when` is true; `reason` follows "has no effect"."""

    settings: tuple[str, ...]
    when: Callable[[Scenario], object]
    reason: str


def _searches(scenario: Scenario) -> bool:
    return scenario.by != "stages"


def _in_conversations(scenario: Scenario) -> bool:
    return scenario.turns.kind != "fixed" or scenario.turns.a > 1


def _in_all_classes(scenario: Scenario, setting: str) -> bool:
    return bool(scenario.classes) and all(getattr(kind, setting) is not None for kind in scenario.classes)


PLAN = ("stages", "rate", "stage_seconds", "stage_requests", "warm_up")
PROMPTS = ("prompt_tokens", "shared_prefix_tokens", "classes", "turns", "turn_tokens")
RULES = (
    WithoutEffect(("search_range",), lambda s: s.by == "growth", "with --by growth, which begins with one user"),
    WithoutEffect(("search_range", "search_seconds"), lambda s: not _searches(s), "without a search: --by"),
    WithoutEffect(PLAN, _searches, "in a search for capacity (--by), which chooses its own loads"),
    WithoutEffect(
        ("trace",), lambda s: _searches(s) and s.by != "rate", "with users: a trace has arrivals, for --rate or alone"
    ),
    WithoutEffect(
        ("stages", "stage_seconds", "stage_requests"),
        lambda s: s.trace and not s.rate and not _searches(s),
        "with a trace that is played at its own times",
    ),
    WithoutEffect(
        ("stage_seconds",),
        lambda s: all(step.seconds is not None for step in s.rate or s.stages),
        "if every stage has its own length",
    ),
    WithoutEffect(
        ("arrivals",), lambda s: not (s.rate or s.by == "rate"), "without requests per second: --rate, or --by rate"
    ),
    WithoutEffect(
        ("think_time", "turns", "turn_tokens"),
        lambda s: s.rate or s.by == "rate" or (s.trace and not _searches(s)),
        "in an open loop, whose requests do not wait for each other",
    ),
    WithoutEffect(("turn_tokens",), lambda s: not _in_conversations(s), "without conversations: --turns"),
    WithoutEffect((*PROMPTS, "prompt_kind"), lambda s: s.dataset, "with --dataset, which has the prompts"),
    WithoutEffect(
        (*PROMPTS, "output_tokens", "dataset"), lambda s: s.trace, "with --trace, which has the lengths of its requests"
    ),
    WithoutEffect(
        ("prompt_tokens",),
        lambda s: len(s.prompt_tokens) == 1 and _in_all_classes(s, "prompt_tokens") and not _in_conversations(s),
        "if every class has its own prompt=",
    ),
    WithoutEffect(
        ("output_tokens",),
        lambda s: len(s.output_tokens) == 1 and _in_all_classes(s, "output_tokens"),
        "if every class has its own output=",
    ),
    WithoutEffect(("prompt_kind",), _in_conversations, "in conversations, whose turns are texts"),
    WithoutEffect(("shared_prefix_tokens",), lambda s: s.prompt_kind == "ids", "with --prompt-kind ids"),
)


def check_effects(defaults: Scenario, scenario: Scenario, typed: Collection[str]) -> None:
    """Raise `UserMistake` for a setting without effect that is in `typed`, or that differs from `defaults`: Locust's
    page sends all settings."""
    flags = {setting.name: setting.flag for setting in settings_of(Scenario)}
    for name, reason in _without_effect(scenario):
        if name in typed or getattr(scenario, name) != getattr(defaults, name):
            raise UserMistake(f"{flags[name]} has no effect {reason}: leave it out.")


def _without_effect(scenario: Scenario) -> Iterator[tuple[str, str]]:
    for rule in RULES:
        if rule.when(scenario):
            yield from ((name, rule.reason) for name in rule.settings)
    dialect = DIALECTS[scenario.endpoint]
    for option in scenario.sampling.options:
        if not dialect.takes(option):
            yield option, f"with --endpoint {scenario.endpoint}, whose API has no such option"
