"""Differences between engines, and between a baseline and later runs."""

from typing import Any

import pytest

from enginebench.analysis.engine_runs import EngineRuns
from enginebench.analysis.verdict.differences import Kind, differences, run_to_run, version_differences
from tests.support.analysis.compared import engine_of, run, view


def engine(label: str, *changes: dict[str, Any], **numbers: float) -> EngineRuns:
    """A run for each of `changes`."""
    runs = [run(label, [view(8, numbers)], k, **each) for k, each in enumerate(changes or ({},))]
    return EngineRuns(label, tuple(runs))


PLAIN: dict[str, Any] = {"engine": {"name": "x", "dtype": "bfloat16"}}


@pytest.mark.parametrize(
    ("change", "kind", "incomparable"),
    [
        pytest.param({"scenario": "rate"}, Kind.SCENARIO, True, id="scenario"),
        pytest.param({"workload": {"prompt_tokens": 64}}, Kind.WORKLOAD, True, id="prompt length"),
        pytest.param({"model": "qwen"}, Kind.MODEL, False, id="model"),
        pytest.param({"engine": {"name": "x", "dtype": "q8_0"}}, Kind.FORMAT, False, id="number format"),
        pytest.param({"versions": {"enginebench": "0.2.0"}}, Kind.VERSION, False, id="version"),
        pytest.param({"host": {"cpu": "Other CPU"}}, Kind.MACHINE, False, id="machine"),
        pytest.param({"workers": 4}, Kind.CLIENT, False, id="load generator"),
    ],
)
def test_a_difference_is_named_and_only_the_workload_forbids_a_comparison(
    change: dict[str, Any], kind: Kind, incomparable: bool
) -> None:
    (found,) = differences([engine("a", PLAIN), engine("b", PLAIN | change)])
    assert (found.kind, found.incomparable, set(found.values)) == (kind, incomparable, {"a", "b"})


def test_settings_of_a_workload_that_differ_are_named() -> None:
    ours, theirs = {"prompt_tokens": 32, "seed": 1}, {"prompt_tokens": 64, "seed": 2}
    (found,) = differences([engine("a", PLAIN | {"workload": ours}), engine("b", PLAIN | {"workload": theirs})])
    assert found.settings == ("prompt_tokens",)


def test_settings_that_may_differ_are_no_difference() -> None:
    ours, theirs = {"seed": 1, "slo": "ttft_p95=1"}, {"seed": 2, "slo": ""}
    assert not differences([engine("a", PLAIN | {"workload": ours}), engine("b", PLAIN | {"workload": theirs})])


def test_runs_of_one_label_with_different_engine_settings() -> None:
    small, large = ({"engine": {"name": "x", "dtype": "bfloat16", "options": {"batch": size}}} for size in (1, 8))
    (found,) = differences([engine("a", small, large)])
    assert (found.kind, set(found.values), found.settings) == (Kind.SETTINGS, {"a"}, ("batch",))


def test_measured_lengths_that_differ_by_more_than_5_percent() -> None:
    ours, near, far = (engine(name, PLAIN, output_tokens=mean) for name, mean in (("a", 100), ("b", 97), ("c", 60)))
    assert not differences([ours, near])
    (found,) = differences([ours, far])
    assert (found.kind, found.incomparable, found.values) == (Kind.LENGTHS, False, {"a": (100,), "c": (60,)})


def test_versions_of_one_engine_differ_in_all_but_the_version_of_the_tool() -> None:
    before = engine("a", PLAIN, output_tokens=100)
    later = engine("a", PLAIN | {"versions": {"enginebench": "0.2.0"}}, output_tokens=100)
    assert not version_differences([before], [later])
    changed = {"engine": {"name": "x", "dtype": "q8_0"}}
    kinds = {found.kind for found in version_differences([before], [engine("a", changed, output_tokens=60)])}
    assert kinds == {Kind.FORMAT, Kind.SETTINGS, Kind.LENGTHS}


def test_repeats_that_differ_by_5_percent_or_more() -> None:
    assert run_to_run(engine_of("a", throughput=(100.0, 120.0, 80.0))) == {"8 users": 0.2}
    assert not run_to_run(engine_of("a", throughput=(100.0, 104.0, 96.0)))
    assert not run_to_run(engine_of("a", throughput=(100.0,)))
