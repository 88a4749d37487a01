"""`--profile` of `run`: files next to the result, and in none of its numbers."""

import subprocess
from pathlib import Path

import pytest

from enginebench.records.files import profile_files, read_meta
from tests.support.analysis.rows import rows_of
from tests.support.loadtests.run_command import ENVIRONMENT, RUN

SHORT = ("--stages", "1,3", "--stage-requests", "40", "--output-tokens", "8", "--exporter", "none")
FAKE = ("--engine", "fake", "-o", "ttft=0.01", "-o", "tpot=0.002")
ATTACHED = "sh -c 'cat /proc/$0/cmdline > $1.txt' {pid} {output}"


def run(runs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*RUN, *arguments, "--runs", str(runs)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=300)


def test_an_engine_is_profiled_after_the_run_and_counted_nowhere(tmp_path: Path) -> None:
    done = run(tmp_path, *SHORT, *FAKE, "--profile", ATTACHED, "--json")
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.iterdir()
    assert profile_files(folder) == ("sh.txt",)
    assert "engines.fake.engine:FakeEngine" in (folder / "profile" / "sh.txt").read_text()
    assert "fake: sh at 3 users; these requests are not counted" in done.stderr

    meta, rows = read_meta(folder), rows_of(done.stdout)
    assert [stage.label for stage in meta.stages] == ["1 user", "3 users"]
    lines = [line for path in folder.glob("requests*.jsonl") for line in path.read_text().splitlines()]
    requests = rows.filter(metric="e2e", statistic="p50")["n"].sum()
    assert requests <= len(lines) / 2  # a line as it was sent, and one as it ended
    assert [path.name for path in folder.rglob("requests*.jsonl") if path.parent != folder] == []
    assert [path.parent for path in tmp_path.rglob("meta.json")] == [folder]
    assert f"runs/{folder.name}/profile/sh.txt" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        pytest.param((*FAKE, "--profile", "gprof"), 2, "--profile is py-spy, nsys or a command", id="no process"),
        pytest.param(
            ("--url", "http://127.0.0.1:9", "--profile", ATTACHED), 2, "--profile is for engines", id="a running server"
        ),
    ],
)
def test_what_cannot_be_profiled_is_a_sentence_before_anything_is_served(
    arguments: tuple[str, ...], code: int, sentence: str, tmp_path: Path
) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == code
    assert sentence in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_profile_that_fails_costs_no_result(tmp_path: Path) -> None:
    done = run(tmp_path, *SHORT, *FAKE, "--profile", "sh -c 'echo no permission; exit 1' {pid}")
    assert done.returncode == 2
    assert "fake is not profiled: sh failed: no permission" in done.stderr
    (folder,) = tmp_path.iterdir()
    assert (folder / "report.html").exists()
