"""`enginebench run --profile`: a profile beside the run, and in none of its numbers."""

import subprocess
from pathlib import Path

import pytest

from enginebench.records.files import read_meta
from enginebench.records.profile import read_profiles
from loadtests.harness.profiling.profilers import PROFILERS
from tests.support.analysis.rows import rows_of
from tests.support.loadtests.run_command import ENVIRONMENT, RUN

SHORT = ("--stages", "1,3", "--stage-requests", "40", "--output-tokens", "8", "--exporter", "none")
FAKE = ("--engine", "fake", "-o", "ttft=0.01", "-o", "tpot=0.002")


def run(runs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*RUN, *arguments, "--runs", str(runs)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)


def test_the_engine_and_the_server_are_profiled_after_the_run_and_counted_nowhere(tmp_path: Path) -> None:
    if next(one for one in PROFILERS if one.name == "py-spy").missing():
        pytest.skip("py-spy is not installed")
    done = run(tmp_path, *SHORT, *FAKE, "--profile", "py-spy", "--profile-seconds", "2", "--json")
    (folder,) = tmp_path.iterdir()
    found = read_profiles(folder)
    if any(one.failure and "ermission" in one.failure for one in found):
        pytest.skip("this machine lets no process be attached to")
    assert done.returncode == 0, done.stderr
    assert [(one.label, one.of, one.load, one.failure) for one in found] == [
        ("fake", "engine", "3 users", None),
        ("fake", "server", "3 users", None),
    ]
    assert all(one.picture and (folder / "profile" / one.picture).stat().st_size > 1000 for one in found)
    assert all("py" in one.hot[0].name for one in found)

    meta, rows = read_meta(folder), rows_of(done.stdout)
    assert [stage.label for stage in meta.stages] == ["1 user", "3 users"]
    lines = [line for path in folder.glob("requests*.jsonl") for line in path.read_text().splitlines()]
    requests = rows.filter(metric="e2e", statistic="p50")["n"].sum()
    assert requests <= len(lines) / 2  # a line as it was sent, and one as it ended
    assert [path.name for path in folder.rglob("requests*.jsonl") if path.parent != folder] == []
    assert [path.parent for path in tmp_path.rglob("meta.json")] == [folder]
    assert "py-spy-engine.svg" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param((*FAKE, "--profile", "gprof"), "no profiler called `gprof`; choose from", id="none of that name"),
        pytest.param((*FAKE, "--profile", "torch"), "fake is none: choose from", id="one for other engines"),
        pytest.param(("--url", "http://127.0.0.1:9", "--profile", "perf"), "--profile is for engines", id="a server"),
        pytest.param((*FAKE, "-o", "replicas=2", "--profile", "memray"), "one process of an engine", id="replicas"),
    ],
)
def test_what_cannot_be_profiled_is_a_sentence_before_anything_is_served(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    if "perf" in arguments and next(one for one in PROFILERS if one.name == "perf").missing():
        pytest.skip("perf is not installed")
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert sentence in done.stderr or "is not installed" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())
