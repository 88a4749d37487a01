"""Settings of a scenario and of a run: read from text over the scenario's own defaults, refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import configargparse  # type: ignore[import-untyped]
import pytest

from enginebench.settings.schema import UserMistake, settings_of
from loadtests.harness.run.options import add_options, read_options
from loadtests.harness.scenario import Scenario, rates, read, slo, tokens, users
from loadtests.harness.settings.run_settings import RunSettings
from loadtests.harness.workload.distributions import Pause, parse_pause

SINGLE = Scenario(stages=users("1"), stage_requests=100, warm_up=(0.1, True), prompt_tokens=tokens("10,50"))


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        pytest.param({"stages": "3,5"}, "stages", users("3,5"), id="users of each stage"),
        pytest.param({"stage_requests": ""}, "stage_requests", None, id="empty is none, where none is allowed"),
        pytest.param({"stage_requests": "none"}, "stage_requests", None, id="none, too"),
        pytest.param({"stage_requests": None}, "stage_requests", None, id="so is what a parser has for none"),
        pytest.param({"think_time": "0.5"}, "think_time", Pause("fixed", 0.5), id="a pause"),
        pytest.param({"warm_up": "5"}, "warm_up", (5.0, False), id="a warm-up"),
        pytest.param({"output_tokens": "1,64"}, "output_tokens", tokens("1,64"), id="several lengths"),
        pytest.param({"no_stream": True}, "no_stream", True, id="a value as it is"),
        pytest.param({"unknown": "1"}, "seed", 0, id="what is no setting is left to others"),
    ],
)
def test_values_are_read_from_text(given: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(read(SINGLE, given), field) == value


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        pytest.param({"stages": "many"}, "stages are numbers of users, such as 10,20,40", id="users"),
        pytest.param(
            {"stage_seconds": "soon"},
            "--stage-seconds is a time such as 500ms, 5s, 2m or 1h, not `soon`",
            id="no number",
        ),
        pytest.param({"stage_seconds": "0"}, "--stage-seconds is 0.1 or more, not 0", id="too small"),
        pytest.param({"stage_seconds": "nan"}, "--stage-seconds is 0.1 or more, not nan", id="not a number"),
        pytest.param({"stage_requests": "0"}, "--stage-requests is 1 or more, not 0", id="no requests"),
        pytest.param({"stage_requests": "1.5"}, "--stage-requests is a whole number", id="half a request"),
        pytest.param(
            {"endpoint": "grpc"},
            "--endpoint is one of chat, completions, responses, messages, bedrock, not `grpc`",
            id="a choice",
        ),
        pytest.param({"no_stream": "perhaps"}, "--no-stream is true or false", id="a switch"),
        pytest.param({"prompt_tokens": "uniform:9-3"}, "uniform:16-128", id="a length"),
        pytest.param({"stages": "3", "rate": "5"}, r"users \(--stages\) or .* \(--rate\), not both", id="two loads"),
    ],
)
def test_a_wrong_value_gets_a_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read(SINGLE, given)


def test_users_are_refused_where_requests_arrive_at_a_rate() -> None:
    with pytest.raises(UserMistake, match="this scenario sends requests at a rate: set it with --rate, or test users"):
        read(Scenario(rate=rates("20")), {"stages": "3"})


def test_every_setting_comes_back_from_its_own_text() -> None:
    for defaults in (SINGLE, Scenario(), RunSettings()):
        for one in settings_of(type(defaults)):
            value = getattr(defaults, one.name)
            assert one.parse(one.text(value)) == value, one.name


def test_what_is_in_force_is_told_as_text_and_numbers() -> None:
    facts = read(SINGLE, {"seed": "7"}).facts()
    assert facts.keys() == {one.name for one in settings_of(Scenario)}
    assert facts == json.loads(json.dumps(facts))
    told = ("stages", "stage_requests", "warm_up", "prompt_tokens", "seed", "no_stream", "think_time")
    assert [facts[name] for name in told] == ["1", 100, "10%", "10,50", 7, False, "0"]


def parse(scenario: Scenario, *words: str) -> dict[str, Any]:
    """What Locust's kind of parser makes of a command line."""
    parser = configargparse.ArgumentParser()
    add_options(parser, scenario)
    parsed: dict[str, Any] = vars(parser.parse_args(words))
    return parsed


def test_flags_override_the_scenario_and_the_rest_is_its_own(tmp_path: Path) -> None:
    given = parse(SINGLE, "--stages", "2,4", "--no-stream", "--runs", str(tmp_path), "--label", "mine")
    scenario, settings = read_options(given, SINGLE)
    assert scenario == Scenario(
        stages=users("2,4"), stage_requests=100, warm_up=(0.1, True), prompt_tokens=tokens("10,50"), no_stream=True
    )
    assert (settings.runs, settings.label, settings.model) == (tmp_path, "mine", None)


@pytest.mark.parametrize("variable", [False, True], ids=["flag", "variable"])
def test_a_default_that_is_typed_in_vain_is_refused_as_any_other_value(
    variable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_options(parse(SINGLE), SINGLE)[0].arrivals == "poisson", "what nobody typed is not refused"
    if variable:
        monkeypatch.setenv("ENGINEBENCH_ARRIVALS", "poisson")
    with pytest.raises(ValueError, match="--arrivals has no effect without requests per second"):
        read_options(parse(SINGLE, *([] if variable else ["--arrivals", "poisson"])), SINGLE)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param(("--stages", "many"), "such as 10,20,40", id="a wrong value"),
        pytest.param(("--heade", "X: a"), "unrecognized arguments: --heade", id="half a flag, maybe a secret one"),
    ],
)
def test_a_wrong_flag_is_refused_with_a_sentence(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        parse(SINGLE, *words)
    assert refused.value.code == 2
    assert sentence in capsys.readouterr().err


def test_headers_are_given_one_by_one_or_a_line_each_and_never_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENGINEBENCH_HEADER", "X-Tenant: a-secret\nX-Zone: b, c")
    _, settings = read_options(parse(SINGLE), SINGLE)
    assert settings.header == (("X-Tenant", "a-secret"), ("X-Zone", "b, c"))
    assert "a-secret" not in repr(settings)
    _, settings = read_options(parse(SINGLE, "--header", "A: 1", "--header=B: 2"), SINGLE)
    assert settings.header == (("A", "1"), ("B", "2"))
    with pytest.raises(SystemExit):
        parse(SINGLE, "--help")
    help = capsys.readouterr().out
    assert "a-secret" not in help
    assert "Default: 10,50." in help, "and the defaults in it are the scenario's own"


def test_objectives_are_repeated_or_separated_by_commas_and_replace_the_default() -> None:
    searching = Scenario(slo=slo("failures=0.01"))
    for words in (["--slo", "ttft_p95=0.5", "--slo=tpot_p95=0.05"], ["--slo", "ttft_p95=0.5,tpot_p95=0.05"]):
        scenario, _ = read_options(parse(searching, *words), searching)
        assert scenario.slo == slo("ttft_p95=0.5,tpot_p95=0.05")
    scenario, _ = read_options(parse(searching), searching)
    assert scenario.slo == slo("failures=0.01")


FOLDER = Path(__file__).parents[2] / "loadtests"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_a_scenarios_file_is_a_lesson_and_a_value(path: Path) -> None:
    if path.stem in {"__init__", "cli"}:
        return
    code = path.read_text()
    assert len(code.splitlines()) < 30
    assert f"locust -f loadtests/{path.name} --host" in code.split('"""')[1], "its docstring says how to run it"
    assert "sys." not in code


@pytest.mark.parametrize(
    ("text", "pause"),
    [
        ("2", Pause("fixed", 2.0)),
        ("500ms", Pause("fixed", 0.5)),
        ("uniform:500ms-3s", Pause("uniform", 0.5, 3.0)),
        ("exponential:1m", Pause("exponential", 60.0)),
        ("lognormal:2s,0.5,1min", Pause("lognormal", 2.0, 0.5, 60.0)),
    ],
)
def test_a_pause_takes_units(text: str, pause: Pause) -> None:
    assert parse_pause(text) == pause
