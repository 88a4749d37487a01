"""Every command that README and the docs print is one that works.

Commands on runs are carried out. Of those that would load or serve for minutes, everything before that is carried out:
their options, scenario and stages are checked, and their engines' options. Each scenario, engine and server is run by
tests of its own room, images and clusters by `make test-containers` and `tests/docker`, what is installed and
`enginebench doctor` by `tests/test_installation.py`.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from enginebench.settings.schema import UserMistake
from enginebench.studies.study.archive import pack
from enginebench.studies.study.folder import StudyFacts, write_facts
from enginebench.studies.study.grid_file import find_grid, read_grid
from enginebench.studies.study.sitting import variants as variants_here
from loadtests.harness.command import engine_checks, run_order
from tests.support.analysis import other_tools
from tests.support.analysis.synthetic import Engine, simulate
from tests.support.engines.documented_engine import installed
from tests.support.loadtests.locust_process import LOCUST, ROOT, Locust, launch
from tests.support.loadtests.run_command import processes_forked

DOCS = (*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/how-to").glob("*.md"))
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in DOCS), "validation/README.md")
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```", re.S | re.M)
CHECKED_ELSEWHERE = (
    *("docker", "helm", "kubectl", "grafana", "prometheus", "pip", "uv", "uvx", "pipx", "scp", "export", "taskset"),
    *("curl", "apt-get", "nvidia-ctk", "git", "tar"),
)
"""Programs of others, and installations: see above, and `tests/grafana` for Prometheus with the shipped files."""

LONG = ("run", "quick", "study", "tune", "calibrate", "referee", "serve", "bench")
VERDICTS = (0, 1, 3)
number_formats = cache(engine_checks._choices)  # starts a process for each engine
REACHED = "everything before the load was in order"
NOT_BUILT = "cannot run here"  # an engine that this machine lacks; the command is right


def printed() -> list[Any]:
    """Return each command once, under the first page that prints it."""
    pages: dict[tuple[str, ...], str] = {}
    for page in PAGES:
        for block in BLOCK.findall((ROOT / page).read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                while words and (words[0] == "sudo" or re.fullmatch(r"[A-Z_]+=.*", words[0])):
                    words.pop(0)
                if words and words[0] == "taskset":
                    words = words[3:]
                if words and words[0] == "./run-here":  # of `make bundle`
                    words[0] = "enginebench"
                if words and words != ["enginebench", "doctor"]:
                    pages.setdefault(tuple(word for word in words if word != "&"), page)
    return [pytest.param(words, id=f"{page}: {' '.join(words)}") for words, page in pages.items()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the commands are typed: with the files, the runs and the engine that they name."""
    here = tmp_path_factory.mktemp("typed")
    for label, tpot in (("transformers", 0.02), ("candle", 0.016)):
        for repeat in range(2):
            name = f"20261121-10000{repeat}-{label}-abcd"
            simulate(here / "runs" / name, Engine(label, tpot=tpot), (1, 8), 4.0, seed=repeat, run_id=name)
    shutil.copytree(here / "runs", here / "tutorial")
    for name, of in (("before", "transformers"), ("after", "candle"), ("20261121-100542-server-k3vq", "candle")):
        shutil.copytree(here / "runs" / f"20261121-100000-{of}-abcd", here / "named" / "runs" / name)
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    rows = (f"2023-11-16 18:{second // 60:02}:{second % 60:02}.0,400,20\n" for second in range(0, 1500, 5))
    (here / "AzureLLMInferenceTrace_code.csv").write_text(azure + "".join(rows))
    logged = ({"timestamp": 1000 * second, "prompt_tokens": 50, "output_tokens": 20} for second in range(100))
    (here / "requests.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in logged))
    other_tools.guidellm(here / "benchmarks.json")
    other_tools.aiperf(here / "profile_export.jsonl")
    for run in (1, 2, 3):
        other_tools.vllm_bench(here / f"run-{run}.json")
    other_tools.benchmark_report(here / "benchmark_report_v0.2,_stage_0.yaml")
    saved = ["gate", "--runs", str(here), "--baseline", str(here / "performance" / "baseline"), "--save-baseline"]
    done = CliRunner().invoke(app, [*saved, str(here / "runs")])
    assert done.exit_code == 0, done.output
    _study(here)
    (here / "package").mkdir()
    with installed(here / "package"), processes_forked():
        yield here


def _study(here: Path) -> None:
    """One that has not begun, as a folder and as an archive."""
    for folder, quick in ((here / "runs" / "baseline-quick", True), (here / "packed" / "baseline", False)):
        folder.mkdir(parents=True)
        grid, variants = read_grid(find_grid("baseline"), variants_here(quick))
        facts: dict[str, Any] = {"command": (), "commit": None, "started_at": "", "host": {}}
        write_facts(folder, StudyFacts(name="baseline", variants=variants, grid=grid, **facts))
    committed = here / "docs/results/baseline-amd-epyc-2-cores"
    committed.mkdir(parents=True)
    for path in (here / "baseline.tar.gz", committed / "records.tar.xz"):
        pack(here / "packed" / "baseline", path)


@pytest.mark.parametrize("words", printed())
def test_it_is_accepted(words: tuple[str, ...], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = words
    if program == "enginebench":
        folder = shutil.copytree(folder, tmp_path / "typed")  # commands add to the runs
        named = any(word.startswith(("runs/", "/tmp/from")) and "*" not in word for word in arguments)
        monkeypatch.chdir(folder / "named" if named else folder)
        accepted([word.replace("/tmp/from", "from") for word in arguments], monkeypatch)
    elif program == "locust":
        monkeypatch.chdir(folder)
        command = [LOCUST, *(str(ROOT / word) if word.startswith("loadtests/") else word for word in arguments)]
        locust = Locust(launch([*command, "--list"], folder, os.environ), tmp_path)
        output = locust.wait()
        assert (locust.process.returncode, "User" in output) == (0, True), output
    elif program == "make":
        subprocess.run(["make", "-n", *arguments], cwd=ROOT, check=True, capture_output=True)
    elif program == "python":
        assert arguments[0] == "-m"
        done = subprocess.run([sys.executable, *arguments[:2], "--help"], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    else:
        assert program in CHECKED_ELSEWHERE, f"nothing checks {program}"


def accepted(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`enginebench …` is carried out up to what takes minutes."""

    def reached(*_: Any, **__: Any) -> NoReturn:
        raise UserMistake(REACHED)

    monkeypatch.setattr(engine_checks, "_choices", number_formats)
    monkeypatch.setattr(run_order, "prepared", reached)  # it asks the servers
    monkeypatch.setattr("loadtests.harness.calibration.calibrate.calibrate", reached)
    monkeypatch.setattr("enginebench.studies.referee.tool.which", lambda name: name)
    monkeypatch.setattr("enginebench.studies.referee.tool.run_tool", reached)
    monkeypatch.setattr("engines.bench.cli._measure", reached)
    monkeypatch.setattr("enginebench.studies.study.sitting.measure", reached)
    monkeypatch.setattr("enginebench.studies.tune.runner.TuneRunner.run", reached)
    monkeypatch.setattr("engines.bench.cli._models", lambda *_: {})
    monkeypatch.setattr("engines.process.replicas.load_replicas", reached)
    monkeypatch.setattr("loadtests.harness.profiler.which", lambda name, path: name)
    monkeypatch.setattr("engines.models.fetch.fetch_and_show", lambda *_: None)
    expanded = [path for word in arguments for path in (sorted(glob(word)) if "*" in word else [word])]
    if expanded[0] == "serve":
        expanded += ["--port", "0"]  # the printed one may be in use here
    done = CliRunner().invoke(app, expanded)
    at_once = expanded == ["study"] or expanded[:2] in (["study", "status"], ["study", "report"])
    if expanded[0] in LONG and not at_once:
        assert REACHED in done.output or NOT_BUILT in done.output, done.output
        assert done.exit_code == 2
    else:
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.exit_code in VERDICTS, done.output
