"""The scenario `cold_start`, with our server and one that a command starts. On a busy machine, starts are longer."""

from __future__ import annotations

import sys
from pathlib import Path

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.settings.system import free_port
from tests.support.loadtests.run_command import run_here

LOAD = 0.5  # seconds
SERVE = f"{sys.executable} -m enginebench serve fake -o load_time={LOAD} --port {{}}"


def measured(folder: Path, *arguments: str) -> tuple[RunSummary, str]:
    done = run_here("run", "cold_start", *arguments, "--think-time", "0.1", "--runs", folder)
    (run,) = folder.glob("*/meta.json")
    return summarise(load_run(run.parent)), done.stdout


def test_the_phases_of_a_start_add_up(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(bytes(1 << 20))
    arguments = ("--engine", "fake", "-o", f"load_time={LOAD}", "--drop-cache", str(file))
    summary, screen = measured(tmp_path / "runs", *arguments)
    (stage,) = summary.stages
    phases = {name: seconds.value or 0.0 for name, seconds in stage.quantities.items() if name.startswith("start_")}
    names = ("server", "process", "imports", "load", "warm_up", "answer")
    assert set(phases) == {f"start_{name}" for name in names}
    assert phases["start_load"] >= LOAD
    cold_start = stage.value("cold_start")
    assert cold_start is not None
    assert sum(phases.values()) <= cold_start + 0.02  # the kernel's clock of starts has steps of 10 ms
    assert "From the launch to the first answer it takes fake" in screen
    assert summary.uncached
    assert "startup" not in (summary.engine or {})


def test_a_server_that_a_command_starts_is_measured_from_its_command_on(tmp_path: Path) -> None:
    port = free_port()
    summary, screen = measured(tmp_path, f"http://127.0.0.1:{port}", "--restart", f"exec {SERVE.format(port)}")
    (stage,) = summary.stages
    phases = {phase: stage.value(f"start_{phase}") or 0.0 for phase in ("server", "process", "load", "answer")}
    assert phases["load"] >= LOAD
    assert sum(phases.values()) <= (stage.value("cold_start") or 0.0) + 0.02
    assert "From the launch to the first answer it takes" in screen
    assert not summary.uncached


def test_a_server_that_runs_already_has_no_cold_start(tmp_path: Path) -> None:
    done = run_here("run", "cold_start", "http://127.0.0.1:9", "--runs", tmp_path)
    assert done.exit_code == 2
    assert done.stderr == ("cold_start starts the server: serve an engine with --engine, or say how with --restart.\n")
