"""`--profile` of `run`: files next to the result, and in none of its numbers."""

from pathlib import Path

from enginebench.records.files import profile_files, read_meta
from tests.support.analysis.rows import rows_of
from tests.support.loadtests.run_command import run_here

SHORT = ("--stages", "1,3", "--stage-requests", "20", "--output-tokens", "8", "--exporter", "none")
FAKE = ("--engine", "fake", "-o", "ttft=0.01", "-o", "tpot=0.002")


def test_engines_are_profiled_after_the_runs_and_counted_nowhere(tmp_path: Path) -> None:
    """One engine with two models, one after the other. The profiler fails for the second one, which costs no result."""
    runs = tmp_path / "runs"
    once = f"test ! -e {tmp_path}/done || {{ echo no permission; exit 1; }}; touch {tmp_path}/done"
    profiler = f"sh -c '{once}; cat /proc/$0/cmdline > $1.txt' {{pid}} {{output}}"
    models = ("--model", "random:llama-3.2-tiny", "--model", "random:gpt2")
    done = run_here("run", "concurrent", *SHORT, *FAKE, *models, "--profile", profiler, "--json", "--runs", runs)
    assert done.exit_code == 2, done.stderr
    profiled, failed = sorted(path.parent for path in runs.rglob("meta.json"))
    metas = {read_meta(folder).label: read_meta(folder).model for folder in (profiled, failed)}
    assert metas == {f"fake {model}": model for model in ("random:llama-3.2-tiny", "random:gpt2")}
    assert profile_files(profiled) == ("sh.txt",)
    assert "engines.fake.engine:FakeEngine" in (profiled / "profile" / "sh.txt").read_text()
    assert "fake random:llama-3.2-tiny: sh at 3 users; these requests are not counted" in done.stderr
    assert "fake random:gpt2 is not profiled: sh failed: no permission" in done.stderr

    assert [stage.label for stage in read_meta(profiled).stages] == ["1 user", "3 users"]
    assert {path.parent for path in runs.rglob("requests*.jsonl")} == {profiled, failed}
    counted = rows_of(done.stdout).filter(metric="e2e", statistic="p50")["n"].sum()
    lines = [line for path in runs.rglob("requests*.jsonl") for line in path.read_text().splitlines()]
    assert 0 < counted <= len(lines) / 2  # a line as it was sent, and one as it ended
    assert f"runs/{profiled.name}/profile/sh.txt" in (runs / "report.html").read_text()
