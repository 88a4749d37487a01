"""A setting that does nothing is refused, and one that a scenario has of its own is not."""

from __future__ import annotations

import pytest

from enginebench.settings.schema import UserMistake, settings_of
from loadtests.harness.scenario import Scenario, rates, read, tokens
from loadtests.harness.without_effect import RULES, check_effects
from loadtests.harness.workload.datasets import QUESTIONS
from loadtests.harness.workload.lengths import parse_lengths


def checked(given: dict[str, str], defaults: Scenario | None = None) -> Scenario:
    defaults = defaults or Scenario()
    scenario: Scenario = read(defaults, given)
    check_effects(defaults, scenario, given)
    return scenario


DATASET = str(QUESTIONS)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        pytest.param({"arrivals": "constant"}, "--arrivals has no effect without requests per second", id="users"),
        pytest.param({"arrivals": "poisson"}, "--arrivals has no effect without requests per second", id="the default"),
        pytest.param(
            {"by": "stages", "search_seconds": "3600"}, "--search-seconds .* without a search", id="of a search"
        ),
        pytest.param({"by": "users", "arrivals": "constant"}, "--arrivals .* or --by rate", id="a search by users"),
        pytest.param({"rate": "4", "think_time": "2"}, "--think-time .* in an open loop", id="nobody thinks"),
        pytest.param({"rate": "4", "turns": "2"}, "--turns .* in an open loop", id="no conversations of arrivals"),
        pytest.param({"turn_tokens": "9"}, "--turn-tokens .* without conversations: --turns", id="one turn"),
        pytest.param({"search_seconds": "60"}, "--search-seconds .* without a search: --by", id="no search"),
        pytest.param({"by": "rate", "stages": "4"}, "--stages .* its own loads", id="a search with loads"),
        pytest.param({"by": "users", "stage_requests": "9"}, "--stage-requests .* in a search", id="or with lengths"),
        pytest.param({"by": "growth", "warm_up": "9"}, "--warm-up .* in a search", id="growing users"),
        pytest.param({"by": "growth", "search_range": "2-9"}, "--search-range .* one user", id="and where they begin"),
        pytest.param({"stages": "2x5", "stage_seconds": "9"}, "--stage-seconds .* its own length", id="lengths twice"),
        pytest.param({"dataset": DATASET, "prompt_tokens": "9"}, "--prompt-tokens .* has the prompts", id="a dataset"),
        pytest.param({"dataset": DATASET, "turns": "2"}, "--turns has no effect with --dataset", id="its rows"),
        pytest.param(
            {"prompt_kind": "ids", "shared_prefix_tokens": "9"}, "--shared-prefix-tokens .* ids", id="no words"
        ),
        pytest.param({"turns": "3", "prompt_kind": "ids"}, "--prompt-kind .* turns are texts", id="ids in turns"),
        pytest.param({"endpoint": "messages", "ignore_eos": "yes"}, "--ignore-eos .* no such option", id="not there"),
        pytest.param({"trace": "t.jsonl", "stages": "4"}, "--stages .* at its own times", id="a trace with stages"),
        pytest.param({"trace": "t.jsonl", "output_tokens": "4"}, "--output-tokens .* with --trace", id="and lengths"),
        pytest.param(
            {"classes": "a: prompt=9; b: prompt=8", "prompt_tokens": "9"},
            "--prompt-tokens has no effect if every class has its own prompt=",
            id="classes with lengths",
        ),
        pytest.param(
            {"classes": "a: output=9", "output_tokens": "9"}, "--output-tokens .* its own output=", id="of answers, too"
        ),
        pytest.param({"trace": "t.jsonl", "by": "users"}, "--trace has no effect with users", id="and users"),
    ],
)
def test_what_does_nothing_is_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        checked(given)


@pytest.mark.parametrize(
    "given",
    [
        {"rate": "4", "arrivals": "constant"},
        {"by": "growth", "search_seconds": "60"},
        {"by": "rate", "arrivals": "constant", "search_seconds": "60"},
        {"by": "users", "think_time": "2"},
        {"turns": "3", "turn_tokens": "9", "think_time": "2"},
        {"stages": "2x5,4", "stage_seconds": "9"},
        {"dataset": DATASET, "output_tokens": "9"},
        {"trace": "t.jsonl", "rate": "4", "stage_seconds": "9", "arrivals": "constant"},
        {"endpoint": "messages", "ignore_eos": "no"},
        {"classes": "a: prompt=9; b: output=8", "prompt_tokens": "9", "output_tokens": "9"},
        {"classes": "a: prompt=9", "prompt_tokens": "9,10"},
        {"classes": "a: prompt=9", "prompt_tokens": "9", "turns": "2"},
    ],
    ids=str,
)
def test_what_has_an_effect_is_not(given: dict[str, str]) -> None:
    checked(given)


def test_a_scenarios_own_setting_may_lose_its_effect() -> None:
    """Those who ask for a rate in place of the scenario's users have not asked for their conversations."""
    talking = Scenario(turns=parse_lengths("4"), turn_tokens=parse_lengths("9"), prompt_tokens=tokens("9"))
    assert checked({"rate": "4"}, talking).rate == rates("4")


def test_the_rules_name_settings() -> None:
    assert {name for rule in RULES for name in rule.settings} <= {one.name for one in settings_of(Scenario)}
