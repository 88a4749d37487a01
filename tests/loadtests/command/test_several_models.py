"""`enginebench run` tests an engine with several models, one after the other."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from enginebench.records.files import read_meta
from loadtests import cli
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.contenders import contenders
from loadtests.harness.command.job import Job
from loadtests.harness.command.scenarios import find_scenario


def test_memory_is_measured_for_every_model(tmp_path: Path) -> None:
    """The fake engine has any model's name and loads none."""
    names = ["random:llama-3.2-tiny", "random:gpt2"]
    given = {"stages": "1", "prompt_tokens": "32,64", "output_tokens": "4", "stage_seconds": "1", "runs": str(tmp_path)}
    job = Job.of(find_scenario("memory"), given, 1, [])
    terminal, runs = Terminal(Console(file=io.StringIO(), width=400)), list[Path]()
    assert cli._measure(job, contenders(["fake"], [], models=names), 1, terminal, runs)
    metas = [read_meta(run) for run in runs]
    assert [meta.label for meta in metas] == ["fake random:llama-3.2-tiny", "fake random:gpt2"]
    assert [meta.model for meta in metas] == ["random:llama-3.2-tiny", "random:gpt2"]
    assert [len(meta.stages) for meta in metas] == [2, 2]
