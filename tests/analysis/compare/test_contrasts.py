"""`enginebench compare`: engines against a baseline, measure by measure."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from analysis.compare.contrasts import Contrast, Contrasts, contrast
from analysis.compare.tables import tables_of
from analysis.compare.terminal import print_contrasts
from analysis.compare.winner import compare
from analysis.data.load import load_run
from analysis.report.page import render
from analysis.stats.estimate import Estimate
from analysis.summary.run_summary import RunSummary, summarise
from analysis.summary.stage import StageSummary
from enginebench import app
from records.files import read_requests
from tests.support.analysis.synthetic import Engine, meta_of, simulate, write_run

BASE, QUICK = Engine("transformers", slots=1, tpot=0.01), Engine("candle", slots=4, tpot=0.008)
REPEATS = range(3)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of each of two engines."""
    runs = tmp_path_factory.mktemp("runs")
    for engine in (BASE, QUICK):
        for k in REPEATS:
            simulate(runs / f"{engine.label}-{k}", engine, (1, 4), 12.0, seed=k, repeat=k)
    return runs


@pytest.fixture(scope="module")
def summaries(folders: Path) -> list[RunSummary]:
    return [summarise(load_run(folder)) for folder in sorted(folders.iterdir())]


def found(contrasts: Contrasts, measure: str, engine: str = "candle") -> Contrast:
    one = contrasts.shown.of(engine, measure)
    assert one is not None, measure
    return one


def changed(summaries: Sequence[RunSummary], label: str, change: Any) -> list[RunSummary]:
    """`change(stage, k)` makes another stage of the k-th run of `label`."""
    return [
        dataclasses.replace(run, stages=tuple(change(stage, run.repeat) for stage in run.stages))
        if run.label == label
        else run
        for run in summaries
    ]


def with_throughput(values: Sequence[float]) -> Any:
    return lambda stage, k: dataclasses.replace(stage, throughput=Estimate(values[k]))


def test_an_engine_is_better_in_every_measure_of_time(summaries: list[RunSummary]) -> None:
    """Four slots and 8 ms a token against one slot and 10 ms: four users wait no more, and tokens come faster."""
    contrasts = contrast(summaries)
    assert (contrasts.baseline, contrasts.engines, contrasts.stage) == ("transformers", ("candle",), "4 users")
    assert contrasts.blocked is None
    tpot = found(contrasts, "tpot p50")
    assert tpot.ratio.value == pytest.approx(10 / 8, rel=0.03)
    assert tpot.difference.value == pytest.approx(-0.002, rel=0.15)
    assert (tpot.verdict, tpot.cliff_delta) == ("better", -1)
    assert found(contrasts, "throughput").ratio.value == pytest.approx(4.7, rel=0.05)
    assert found(contrasts, "throughput").cliff_delta == 1
    for one in contrasts.shown.contrasts:
        if one.measure in {"failure_share", "engine_memory_bytes"}:
            assert one.verdict == "alike"
        else:
            assert one.verdict == "better", one.measure


def test_numbers_that_can_be_worked_out_by_hand(summaries: list[RunSummary]) -> None:
    """Throughputs 98, 110, 123.42 against 50, 55, 60.5, paired: ratios of 2 · 0.98, 2 and 2 · 1.02."""
    runs = changed(summaries, "transformers", with_throughput((50.0, 55.0, 60.5)))
    runs = changed(runs, "candle", with_throughput((98.0, 110.0, 123.42)))
    one = found(contrast(runs), "throughput")
    assert one.paired
    # t of two degrees of freedom, 4.303, times a standard deviation of 2 % over √3
    assert (one.ratio.value, one.ratio.low, one.ratio.high) == pytest.approx((2, 1.903, 2.102), rel=1e-3)
    assert one.difference.value == pytest.approx(55.307, abs=1e-3)
    assert (one.ours.mean, one.ours.median, one.ours.least) == pytest.approx((110.473, 110, 98), rel=1e-5)


def test_differences_of_shares_are_points(summaries: list[RunSummary]) -> None:
    """Failures of 6 %, 8 % and 10 % against 1 %, 2 % and 3 %: 5, 6 and 7 points more, 6 ± 4.303 · 1/√3."""

    def failing(shares: tuple[float, ...]) -> Any:
        return lambda stage, k: dataclasses.replace(stage, failure_share=Estimate(shares[k], n=10_000))

    runs = changed(summaries, "transformers", failing((0.01, 0.02, 0.03)))
    contrasts = contrast(changed(runs, "candle", failing((0.06, 0.08, 0.10))))
    table = tables_of(contrasts).measures
    (row,) = (row for row in table.rows if row[0] == "failed")
    assert row[1:4] == ("2 %", "8 %", "+6.0 points [+3.5, +8.5]")
    wild = found(contrast(changed(runs, "candle", failing((0.0, 0.9, 1.0)))), "failure_share")
    assert wild.difference.low == pytest.approx(-0.732, abs=1e-3)
    assert wild.difference.high == 1


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        pytest.param((120.0, 121.0, 119.0), "better", id="20 % more, 1 % between runs"),
        pytest.param((80.0, 81.0, 79.0), "worse", id="20 % less"),
        pytest.param((101.0, 100.0, 100.5), "alike", id="within the margin for certain"),
        pytest.param((107.0, 90.0, 110.0), "not shown", id="may be chance"),
        pytest.param((102.0, 102.5, 101.5), "alike", id="certain, and below the margin"),
    ],
)
def test_the_rule_of_the_verdict(summaries: list[RunSummary], ours: tuple[float, ...], verdict: str) -> None:
    runs = changed(summaries, "transformers", with_throughput((100.0, 100.5, 99.5)))
    assert found(contrast(changed(runs, "candle", with_throughput(ours))), "throughput").verdict == verdict


def test_p_is_corrected_for_all_measures_of_the_stage(summaries: list[RunSummary]) -> None:
    """A p of 2 % by itself is no claim among a dozen measures."""
    runs = changed(summaries, "transformers", with_throughput((100.0, 101.0, 99.0)))
    one = found(contrast(changed(runs, "candle", with_throughput((109.0, 113.0, 110.0)))), "throughput")
    assert one.p is not None
    assert one.ratio.low is not None
    alone = compare(changed(runs, "candle", with_throughput((109.0, 113.0, 110.0)))).winner
    assert alone == "candle", "with one measure it would be claimed"
    assert one.ratio.low > 1
    assert one.p >= 0.01


def test_one_run_each_claims_nothing(summaries: list[RunSummary]) -> None:
    contrasts = contrast([summaries[0], summaries[-1]])
    assert {one.verdict for one in contrasts.shown.contrasts} == {"not shown"}
    assert contrasts.sentence == (
        "candle against transformers at 4 users: no difference is shown: 1 run each, and a claim needs 3."
    )


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        pytest.param({"commit": "abc"}, "commits_differ", id="commit"),
        pytest.param({"host": {"cpu": "Another"}}, "clients_differ", id="host"),
        pytest.param({"model": "another"}, "workloads_differ", id="model"),
        pytest.param({"engine": {"name": "candle", "dtype": "float32"}}, "formats_differ", id="number format"),
        pytest.param({"scenario": "single"}, "scenarios_differ", id="scenario"),
        pytest.param({"workload": {"output_tokens": "99"}}, "workloads_differ", id="workload"),
    ],
)
def test_what_differs_blocks_the_claim(summaries: list[RunSummary], change: dict[str, Any], kind: str) -> None:
    runs = [dataclasses.replace(run, **change) if run.label == "candle" else run for run in summaries]
    contrasts = contrast(runs)
    assert kind in {finding.kind for finding in contrasts.differ}
    assert contrasts.sentence.startswith("Nothing is claimed, because the runs differ")
    allowed = contrast(runs, allow_different=True)
    assert allowed.blocked is None
    assert allowed.sentence.startswith("candle against transformers at 4 users: better in TTFT p50")


def test_failures_are_no_number(summaries: list[RunSummary]) -> None:
    def failed(stage: StageSummary, k: int) -> StageSummary:
        ttft = dataclasses.replace(stage.latencies["ttft"], p99=Estimate(math.inf, why="failed"))
        return dataclasses.replace(stage, latencies=dict(stage.latencies) | {"ttft": ttft})

    one = found(contrast(changed(summaries, "candle", failed)), "ttft p99")
    assert (one.ratio.value, one.ratio.why, one.verdict) == (None, "falls among failed requests", "not shown")


def test_prompts_are_paired_where_they_are_the_same(tmp_path: Path) -> None:
    """TTFT depends on the prompt alone, between 0.1 and 1 s, and the engine takes half of it."""
    for label, factor in (("transformers", 1.0), ("candle", 0.5)):
        for k in REPEATS:
            source = simulate(tmp_path / "source" / f"{label}-{k}", Engine(label, slots=8), (4,), 12.0, seed=k)
            meta = dataclasses.replace(load_run(source).meta, repeat=k)
            records = []
            for index, one in enumerate(read_requests(source)):
                assert one.t_send is not None
                first = one.t_send + round(factor * (0.1 + 0.9 * (index * 7 % 20) / 19) * 1e9)
                prompt = f"{k}-{index * 7 % 20}"
                records.append(
                    dataclasses.replace(one, prompt_id=prompt, t_first=first, t_last=first + 10**8, t_end=first + 10**8)
                )
            write_run(tmp_path / "runs" / f"{label}-{k}", meta, records)
    runs = [summarise(load_run(folder)) for folder in sorted((tmp_path / "runs").iterdir())]
    pairs = found(contrast(runs), "ttft p50").by_prompt
    assert pairs is not None
    assert pairs.prompts == 20
    assert pairs.ratio.value == pytest.approx(2, rel=1e-6)
    assert (pairs.ratio.high, pairs.ratio.why) == (None, "no spread from run to run")


def test_it_is_printed_and_drawn(summaries: list[RunSummary]) -> None:
    contrasts = contrast(summaries)
    for width in (240, 120, 80):
        file = io.StringIO()
        print_contrasts(Console(file=file, width=width, highlight=False), contrasts)
        text = file.getvalue()
        assert "…" not in text
        assert text.split("\n")[2].split()[:3] == ["engine", "TTFT", "p50"]
        assert ("Mann–Whitney  Cohen's d" in text) == (width == 240)
    page = render(summaries, compare(summaries))
    assert '<h2 id="against">Against transformers at 4 users</h2>' in page
    assert "Cliff&#39;s δ" in page
    assert contrasts.sentence in page


def test_the_command(folders: Path) -> None:
    runner = CliRunner()
    result = runner.invoke(app, ["compare", str(folders), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [stage["label"] for stage in document["stages"]] == ["1 user", "4 users"]
    rows = {(one["engine"], one["measure"]): one for one in document["stages"][1]["contrasts"]}
    assert rows["candle", "tpot p50"]["verdict"] == "better"
    assert {"welch", "mann_whitney", "cohen_d", "cliff_delta", "p", "ours", "theirs"} <= rows[
        "candle", "e2e p50"
    ].keys()
    assert len(document["runs"]["candle"]) == 3
    shown = runner.invoke(app, ["compare", str(folders), "--stage", "1 user", "--baseline", "candle"])
    assert "transformers against candle at 1 user: worse in TPOT p50" in shown.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--baseline", "vllm"], "there are no runs of `vllm`; the baseline is one of candle, transformers."),
        (["--stage", "9 users"], "the runs have no common stage `9 users`; choose from 1 user, 4 users."),
    ],
)
def test_mistakes_are_told_with_the_choices(folders: Path, arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["compare", str(folders), *arguments])
    assert result.exit_code == 2
    assert said in result.stderr


def test_two_folders_with_runs_of_one_label_are_two_contenders(tmp_path: Path) -> None:
    for name, tpot in (("before", 0.01), ("after", 0.008)):
        for k in REPEATS:
            simulate(tmp_path / name / f"run-{k}", Engine("vllm", tpot=tpot), (4,), 10.0, seed=k, repeat=k)
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    result = CliRunner().invoke(app, ["compare", before, after])
    assert result.exit_code == 0, result.output
    assert "vllm (after) against vllm (before) at 4 users: better in" in result.stdout.replace("\n", " ")
    assert CliRunner().invoke(app, ["compare", before, before]).exit_code == 2, "one engine is nothing to compare"


def test_the_wheel_of_time(tmp_path: Path) -> None:
    """A summary that was written is read again as it was."""
    from analysis.summary.run_summary import read_summary, write_summary

    summary = summarise(load_run(simulate(tmp_path, Engine("fake", failures=0.2), (2, 4), 10.0)))
    write_summary(summary)
    again = read_summary(tmp_path)
    assert again.at("4 users") is not None
    for stage, other in zip(summary.stages, again.stages, strict=True):
        assert other.throughput == stage.throughput
        for name, latency in stage.latencies.items():
            assert other.latencies[name].p99.value == latency.p99.value, name
    assert again.findings == summary.findings
    assert meta_of(()).label == "fake"
