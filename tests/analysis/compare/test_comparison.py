"""Engine against engine: one comparison, of which headline, tables and winner are made; and when no winner is named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from enginebench.analysis.compare.comparison import Comparison, compare
from enginebench.analysis.compare.headline import headline
from enginebench.analysis.compare.metric_comparison import MetricComparison
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.slo import Objective
from enginebench.records.view import Estimate, Finding
from enginebench.settings.schema import UserMistake
from tests.support.analysis.compared import judged_view, run, runs_of, view
from tests.support.analysis.draws import width

NEAR = (1.0, 0.99, 1.01, 0.995, 1.005)
CLOSE = (1.0, 0.992, 1.008, 0.995, 1.005)


def tokens(label: str, rate: float, factors: Sequence[float] = NEAR, **changes: Any) -> list[RunSummary]:
    return [replace(each, **changes) for each in runs_of(label, throughput=[rate * factor for factor in factors])]


def deciding(comparison: Comparison, engine: str, over: str | None = None) -> MetricComparison:
    found = comparison.of(comparison.stage, engine, "throughput", over)
    assert found is not None
    return found


def test_one_run_each_names_no_winner() -> None:
    runs = [*tokens("slow", 100, (1.0,)), *tokens("quick", 400, (1.0,))]
    comparison = compare(runs)
    assert comparison.winner is None
    assert deciding(comparison, "quick", "slow").ratio.low is None
    assert headline(comparison, runs) == (
        "quick served 4.0× the tokens of slow at 8 users in this run. No winner is named: a winner needs 3 repeats of "
        "each."
    )


def test_the_headline_says_who_won_by_how_much() -> None:
    runs = [*tokens("slow", 100, CLOSE), *tokens("quick", 400)]
    comparison = compare(runs)
    assert comparison.winner == "quick"
    assert headline(comparison, runs).startswith("quick served 4.00× [3.99, 4.01] the tokens of slow at 8 users, over ")
    assert headline(compare(runs[::-1]), runs[::-1]) == headline(comparison, runs), "whatever the order"


def test_a_difference_that_is_not_shown_is_said_so_and_asks_for_nothing() -> None:
    apart = [*tokens("a", 100, CLOSE), *tokens("b", 100, (0.9, 1.2, 1.0))]
    alike = [*tokens("a", 100), *tokens("b", 100)]
    for runs, verdict in ((apart, "No difference is shown: "), (alike, "Both are alike: ")):
        sentence = headline(compare(runs), runs)
        assert sentence.startswith(verdict)
        assert re.search(r" at 8 users, over [35] repeats \(.*\)\.$", sentence)
        assert "winner" not in sentence


def test_of_two_engines_the_headline_has_the_first_tokens() -> None:
    runs = [*runs_of("slow", throughput=[100.0, 101.0, 99.0], ttft_p95=[0.9, 0.88, 0.92])]
    runs += runs_of("quick", throughput=[400.0, 404.0, 396.0], ttft_p95=[0.3, 0.3, 0.3])
    assert headline(compare(runs), runs).endswith(
        ", over 3 repeats. TTFT p95: quick about 300 ms, slow 900 ms [850, 950]."
    )


def test_three_engines() -> None:
    runs = [*tokens("slow", 100, CLOSE), *tokens("middle", 200), *tokens("quick", 400, CLOSE[::-1])]
    comparison = compare(runs)
    assert comparison.engines == ("quick", "middle", "slow")
    assert comparison.winner == "quick"
    assert headline(comparison, runs).startswith("quick served the most tokens at 8 users: ")
    assert " those of middle and " in headline(comparison, runs)


def test_the_winner_is_better_in_the_one_comparison_whatever_the_runs() -> None:
    """The headline's verdict is the table's, with the same p; and where none is named, one of them is not better."""
    rng = np.random.default_rng(7)
    winners = 0
    for _ in range(40):
        rates = {label: rng.uniform(80, 120) * rng.uniform(0.95, 1.1, 3) for label in "abcd"[: rng.integers(2, 5)]}
        comparison = compare(
            [each for label, rate in rates.items() for each in runs_of(label, throughput=rate.tolist())]
        )
        best, *others = comparison.engines
        leads = [deciding(comparison, best, other) for other in others]
        assert (comparison.winner == best) is all(lead.verdict == "better" for lead in leads)
        for other in others:
            shown = deciding(comparison, other, comparison.baseline) if other != comparison.baseline else None
            assert deciding(comparison, other, best).p == deciding(comparison, best, other).p
            assert shown is None or best != comparison.baseline or shown.p == deciding(comparison, best, other).p
        winners += comparison.winner is not None
    assert 5 < winners < 35


def test_with_objectives_the_winner_holds_more_load_whatever_the_shares() -> None:
    slo, rng = Objective("ttft", 0.95, 0.5), np.random.default_rng(8)
    winners = 0
    for _ in range(30):
        runs = []
        for label in ("a", "b"):
            shares = np.sort(rng.uniform(0.85, 1.0, 3))[::-1]
            for k in range(3):
                stages = [
                    judged_view(load, slo, float(share), throughput=100 + load + rng.normal())
                    for load, share in zip((10, 20, 40), shares, strict=True)
                ]
                runs.append(run(label, stages, k, objectives=(slo,)))
        comparison = compare(runs)
        if comparison.winner is None:
            continue
        winners += 1
        (other,) = set(comparison.engines) - {comparison.winner}
        ratio = comparison.capacity_ratio(comparison.winner, other)
        assert ratio is not None
        better = deciding(comparison, comparison.winner, other).verdict == "better"
        assert ratio.verdict == "better" or (ratio.ratio.value == 1 and better)
    assert winners > 3


@pytest.mark.parametrize(
    ("at_20", "why"),
    [
        pytest.param({"a": (0.999, 3), "b": (0.2, 3)}, None, id="three runs of each"),
        pytest.param({"a": (0.999, 1), "b": (0.2, 3)}, "a has 1", id="one run of the engine that meets it"),
        pytest.param({"a": (0.999, 3), "b": (0.2, 2)}, "b has 2", id="two runs of the one that misses it"),
        pytest.param({"a": (0.999, 1), "b": (0.999, 1)}, "a has 1", id="of one bracket: tokens decide nothing either"),
    ],
)
def test_a_winner_needs_three_runs_at_the_loads_that_decide(
    at_20: dict[str, tuple[float, int]], why: str | None
) -> None:
    """Each has three runs at 10 users, and at 20 as many as are given. `a` serves twice the tokens."""
    slo, runs = Objective("ttft", 0.95, 0.5), []
    for label, (share, repeats) in at_20.items():
        for k in range(3):
            rate = NEAR[k] * (200 if label == "a" else 100)
            stages = [judged_view(10, slo, 0.999, throughput=rate), judged_view(20, slo, share, throughput=rate)]
            runs.append(run(label, stages[: 2 if k < repeats else 1], k, objectives=(slo,)))
    comparison = compare(runs)
    assert comparison.engines[0] == "a"
    assert comparison.winner == ("a" if why is None else None)
    ratio = comparison.capacity_ratio("a", "b")
    assert ratio is not None
    assert ratio.verdict == ("better" if why is None else "not shown")
    if why is not None:
        assert f"a winner needs 3 repeats of each at 20 users: {why}" in str(comparison.why)


def test_repeats_of_one_engine_with_other_settings_claim_nothing() -> None:
    """Not of it; engines of two labels may differ in their settings."""
    few, many = {"name": "vllm", "max_concurrency": 8}, {"name": "vllm", "max_concurrency": 64}
    alike = [*tokens("quick", 200, engine=many), *tokens("slow", 100, CLOSE, engine=few)]
    assert compare(alike).winner == "quick"
    mixed = [*tokens("quick", 200, NEAR[:3], engine=many), *tokens("slow", 100, CLOSE[:3], engine=few)]
    mixed[-1] = replace(mixed[-1], engine=many)
    comparison = compare(mixed)
    (finding,) = (each for each in comparison.findings if each.kind == "settings_differ")
    assert finding.evidence == "the runs of slow had different engine settings: max_concurrency 8 and 64"
    assert (comparison.winner, comparison.differs, list(comparison.unlike)) == (
        None,
        {"slow": "engine settings"},
        ["slow"],
    )
    assert compare(mixed, allow_different=True).winner == "quick"
    unknown = [*mixed[:-1], replace(mixed[-1], engine=None)]
    assert compare(unknown).winner == "quick"


def test_constant_metrics_do_not_inflate_the_family() -> None:
    rates = {"a": (112.0, 109, 113), "b": (100.0, 101, 99)}
    alone = compare([each for label, values in rates.items() for each in runs_of(label, ttft_p50=values)])
    constants: dict[str, Any] = {
        "failure_share": (Estimate(0.0, n=100),) * 3,
        "tpot_p50": (0.01,) * 3,
        "e2e_p50": (1.0,) * 3,
    }
    more = [each for label, values in rates.items() for each in runs_of(label, ttft_p50=values, **constants)]
    first, second = (each.of("8 users", "a", "ttft p50", "b") for each in (alone, compare(more)))
    assert first is not None
    assert second is not None
    assert first.p == second.p


def test_a_difference_that_may_be_chance_names_no_winner() -> None:
    runs = [*tokens("quick", 100, (1.0, 0.97, 1.03)), *tokens("twin", 101, (0.97, 1.04, 0.99))]
    assert compare(runs).winner is None
    assert headline(compare(runs), runs).endswith(", over 3 repeats (the difference may be chance).")


@pytest.mark.parametrize(("margin", "winner"), [(1.05, None), (1.02, "better")])
def test_a_winner_needs_a_practical_margin(margin: float, winner: str | None) -> None:
    """3 % more in every repeat is significant, and may still be no reason to change engines."""
    runs = [*tokens("quick", 100), *tokens("better", 103, CLOSE)]
    comparison = compare(runs, margin=margin)
    assert comparison.winner == winner
    if winner is None:
        assert headline(comparison, runs).endswith("the practical margin of 1.05).")


def test_an_engine_that_rejects_names_no_winner() -> None:
    """It serves the most tokens, and rejects a third of its requests."""
    rejecting = runs_of(
        "rejecting", throughput=[400 * factor for factor in NEAR], failure_share=[Estimate(0.35, n=100)] * 5
    )
    runs = [*rejecting, *tokens("slow", 100, CLOSE)]
    comparison = compare(runs)
    assert comparison.engines[0] == "rejecting"
    assert comparison.winner is None
    assert "35 % of the requests to rejecting failed." in headline(comparison, runs)


def test_one_engine_has_no_winner() -> None:
    (summary,) = runs_of("quick", throughput=(100.0,), ttft_p50=(0.1,), ttft_p95=(0.2,))
    assert compare([summary]).winner is None
    assert headline(compare([summary]), [summary]) == (
        "quick served 100 output tokens/s at 8 users, with TTFT p50 about 100 ms and p95 about 200 ms."
    )


@pytest.mark.parametrize(
    ("known", "words"),
    [
        pytest.param({"ttft_p50": (0.1,)}, ", with TTFT p50 about 100 ms", id="a tail cut off"),
        pytest.param({}, "", id="nothing known"),
    ],
)
def test_a_percentile_that_is_not_known_is_left_out_of_the_sentence(known: dict[str, Any], words: str) -> None:
    unknown = {name: (Estimate(None, n=33, why="depends on cut-off requests"),) for name in ("ttft_p50", "ttft_p95")}
    (summary,) = runs_of("quick", throughput=(100.0,), **unknown | known)
    assert headline(compare([summary]), [summary]) == f"quick served 100 output tokens/s at 8 users{words}."


def test_the_heaviest_common_load_is_that_of_the_headline() -> None:
    quick = run("quick", [view(load, {"throughput": 100.0}) for load in (4, 8)])
    other = run("other", [view(load, {"throughput": 100.0}) for load in (2, 4)])
    comparison = compare([quick, other])
    assert (comparison.stage, comparison.stages) == ("4 users", ("4 users",))
    assert {(load.stage, load.engine) for load in comparison.loads} == {
        ("2 users", "other"),
        *(("4 users", label) for label in ("quick", "other")),
        ("8 users", "quick"),
    }, "the table has all loads"


def test_engines_are_compared_at_each_load_that_both_have() -> None:
    """A third engine that was stopped early hides nothing of the others."""
    loads = {"a": (4, 8), "b": (4, 8), "c": (4,)}
    runs = [
        run(label, [view(load, {"throughput": 100 * NEAR[k] * (1 + (label == "a"))}) for load in own], k)
        for label, own in loads.items()
        for k in range(3)
    ]
    comparison = compare(runs, baseline="b")
    assert comparison.of("8 users", "a", "throughput") is not None
    assert comparison.of("8 users", "c", "throughput") is None


def test_named_stages_are_aligned_by_their_names() -> None:
    names = ("10 prompt tokens", "200 prompt tokens")
    runs = [
        run(label, [view(1, {"throughput": 10.0}, label=name, named=True, index=k) for k, name in enumerate(names)])
        for label in ("one", "two")
    ]
    assert compare(runs).stage == "200 prompt tokens"
    assert " at 200 prompt tokens in this run" in headline(compare(runs), runs)


def test_different_scenarios_are_compared_only_where_that_is_allowed() -> None:
    runs = [*tokens("quick", 200), *tokens("slow", 100, CLOSE, scenario="single")]
    comparison = compare(runs, allow_invalid=True)
    assert (
        headline(comparison, runs) == "Nothing is compared: the runs are of different scenarios (concurrent, single)."
    )
    assert [(f.kind, f.severity) for f in comparison.findings] == [("scenarios_differ", "invalid")]
    assert (comparison.comparisons, comparison.stage) == ((), None)
    assert compare(runs, allow_different=True).winner == "quick"


@pytest.mark.parametrize(
    ("changes", "kind", "severity", "evidence", "word"),
    [
        pytest.param(
            {"workload": {"output_tokens": "64"}},
            *("workloads_differ", "invalid", "were asked different things", "workload"),
            id="other lengths",
        ),
        pytest.param(
            {"workload": {"prompt_set": "set 0", "slo": "ttft_p95=1"}, "objectives": (Objective("ttft", 0.95, 1.0),)},
            *("workloads_differ", "invalid", "are judged by different objectives: none and ttft_p95=1", "workload"),
            id="another SLO",
        ),
        pytest.param({"model": "another"}, "models_differ", "warn", "served different models", "model", id="model"),
        pytest.param(
            {"host": {"cpu": "Other"}}, "clients_differ", "warn", "generator's CPU", "load generator", id="machine"
        ),
        pytest.param(
            {"host": {"cpu": "Test CPU", "gpus": "NVIDIA L4"}}, "gpus_differ", "warn", "GPUs: none and NVIDIA L4", "GPU"
        ),
        pytest.param(
            {"workers": 4}, "clients_differ", "warn", "worker processes (1 and 4)", "load generator", id="processes"
        ),
    ],
)
def test_unlike_runs_claim_nothing_unless_that_is_allowed(
    changes: dict[str, Any], kind: str, severity: str, evidence: str, word: str
) -> None:
    """Headline and table alike."""
    runs = [*tokens("quick", 200), *tokens("slow", 100, CLOSE, **changes)]
    comparison = compare(runs)
    assert [(f.severity, f.kind) for f in comparison.findings] == [(severity, kind)], "once for five repeats"
    assert evidence in comparison.findings[0].evidence
    assert (comparison.winner, comparison.differs) == (None, {"slow": word})
    assert headline(comparison, runs).endswith("(--allow-different accepts that).")
    assert {each.verdict for each in comparison.comparisons} == {"not shown"}
    allowed = compare(runs, allow_different=True)
    assert allowed.winner == "quick"
    assert deciding(allowed, "quick", "slow").verdict == "better"
    assert allowed.differs == comparison.differs


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        pytest.param({"engine": {"dtype": "float32"}}, "formats_differ", id="number format"),
        pytest.param({"commit": "abc"}, "commits_differ", id="commit"),
        pytest.param({"versions": {"enginebench": "0.2.0"}}, "commits_differ", id="version"),
    ],
)
def test_a_format_or_a_version_is_named_and_hinders_nothing(changes: dict[str, Any], kind: str) -> None:
    """One of three engines differs: it is named in a column, and the others are compared."""
    runs = [*tokens("a", 200), *tokens("b", 100, CLOSE), *tokens("c", 50, CLOSE[::-1], **changes)]
    comparison = compare(runs)
    assert [finding.kind for finding in comparison.findings] == [kind]
    assert list(comparison.differs) == ["c"]
    assert (comparison.winner, comparison.unlike) == ("a", {})
    assert ("(bfloat16 against float32)" in headline(comparison, runs)) == (kind == "formats_differ")


def test_of_several_engines_only_the_unlike_one_is_left_out_of_claims() -> None:
    runs = [*tokens("a", 200), *tokens("b", 100, CLOSE), *tokens("c", 50, CLOSE[::-1], model="another")]
    comparison = compare(runs, baseline="b")
    assert deciding(comparison, "a").verdict == "better"
    assert deciding(comparison, "c").verdict == "not shown"
    assert list(comparison.unlike) == ["c"]


@pytest.mark.parametrize(
    ("changes", "evidence"),
    [
        pytest.param({"end": 20.0}, "were measured over 60.0 s and 20.0 s", id="another length of the window"),
        pytest.param({"cached_tokens": 30.0}, "took 0 % and 75 % of their prompt tokens", id="a warm prefix cache"),
        pytest.param({"prompt_tokens": 60.0}, "prompts of 40.0 and 60.0 tokens", id="another chat template"),
        pytest.param({"output_tokens": 8.0}, "answers of 16.0 and 8.00 tokens", id="shorter answers"),
    ],
)
def test_other_work_at_the_same_stage_is_found(changes: dict[str, float], evidence: str) -> None:
    end, numbers = changes.get("end", 60.0), {"prompt_tokens": 40.0, "output_tokens": 16.0}
    other = numbers | {name: value for name, value in changes.items() if name != "end"}
    runs = [run("one", [view(8, numbers)]), run("two", [view(8, other, end=end)])]
    assert any(evidence in finding.evidence for finding in compare(runs).findings)


def test_windows_of_as_many_requests_take_the_time_that_they_take() -> None:
    """`--stage-requests`: the slower engine's window is longer, which is the result."""
    asked: dict[str, Any] = {"workload": {"stage_requests": 32}}
    runs = [run("one", [view(8, {})], **asked), run("two", [view(8, {}, end=20.0)], **asked)]
    assert compare(runs).findings == ()


@pytest.mark.parametrize("setting", [{"seed": 7}, {"prompt_set": "another"}, {"stages": "4,8,16"}, {"context": 8192}])
def test_another_seed_is_not_another_workload(setting: dict[str, Any]) -> None:
    (quick,), (slow,) = tokens("quick", 200, (1.0,)), tokens("slow", 100, (1.0,))
    assert compare([quick, replace(slow, workload={**slow.workload, **setting})]).findings == ()


def test_runs_that_asked_different_prompts_are_not_pairs() -> None:
    """Both engines are faster and slower together, which pairs take out of the ratio."""
    together = [*tokens("quick", 200, (1.0, 0.8, 1.2)), *tokens("slow", 100, (1.0, 0.81, 1.2))]
    apart = [replace(each, workload={"prompt_set": each.label}) for each in together]
    narrow, wide = (deciding(compare(runs), "quick", "slow").ratio for runs in (together, apart))
    assert width(wide) > 10 * width(narrow)


def test_an_invalid_run_cannot_win_unless_that_is_allowed() -> None:
    """Neither in the headline nor in the table."""
    void = Finding("client_late", "invalid", "41 ms late", "add --processes", None, "quick")
    runs = [*tokens("quick", 200, findings=(void,)), *tokens("slow", 100, CLOSE)]
    comparison = compare(runs, baseline="slow")
    assert comparison.winner is None
    assert headline(comparison, runs).endswith("a run of quick is invalid (--allow-invalid accepts it).")
    assert deciding(comparison, "quick").verdict == "not shown"
    allowed = compare(runs, baseline="slow", allow_invalid=True)
    assert (allowed.winner, deciding(allowed, "quick").verdict) == ("quick", "better")


def test_a_throttled_gpu_on_one_side_claims_nothing() -> None:
    hot = Finding("gpu_throttled", "warn", "power cap", "cool it", None, "slow")
    comparison = compare([*tokens("quick", 200), *tokens("slow", 100, CLOSE, findings=(hot,))])
    assert [finding.kind for finding in comparison.findings] == ["throttling_differs"]
    assert comparison.winner is None
    both = [*tokens("quick", 200, findings=(hot,)), *tokens("slow", 100, CLOSE, findings=(hot,))]
    assert compare(both).winner == "quick"


def test_repeats_that_differ_are_found_and_widen_the_interval() -> None:
    """Three runs at 100 %, 80 % and 120 % of one another's tokens: 20 % apart from run to run."""
    apart = compare([*tokens("quick", 200, (1.0, 0.8, 1.2)), *tokens("slow", 100, CLOSE[:3])])
    near = compare([*tokens("quick", 200, NEAR[:3]), *tokens("slow", 100, CLOSE[:3])])
    (finding,) = apart.findings
    assert finding.kind == "run_to_run"
    assert "3 runs of quick differ in output tokens/s at 8 users: standard deviation 20 %" in finding.evidence
    assert near.findings == ()
    assert width(deciding(apart, "quick", "slow").ratio) > 5 * width(deciding(near, "quick", "slow").ratio)


def test_an_engine_that_served_nothing() -> None:
    runs = [*tokens("quick", 200, (1.0,)), *tokens("dead", 0.0, (1.0,))]
    comparison = compare(runs)
    assert comparison.winner is None
    assert headline(comparison, runs).startswith("quick served all tokens and dead none at 8 users in this run.")
    dead = tokens("dead", 0.0, (1.0, 1.0))
    assert compare(dead).winner is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"baseline": "vllm"}, "there are no runs of `vllm`; the baseline is one of quick, slow"),
        ({"stage": "9 users"}, "the runs have no common stage `9 users`; choose from 8 users"),
    ],
)
def test_mistakes_name_the_choices(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserMistake, match=message):
        compare([*tokens("quick", 200), *tokens("slow", 100)], **arguments)
