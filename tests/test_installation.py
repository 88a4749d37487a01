"""What people install works: the wheel, in an environment without development packages, used from another folder."""

import csv
import importlib.metadata
import io
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import uv

from enginebench.cli import COMMANDS
from enginebench.records.files import read_meta, read_requests
from loadtests.harness.run.options import processes_options
from tests.support.servers.scripted import ScriptedServer
from tests.support.servers.served import ROOT

SHORT = (
    *("--stage-seconds", "3", "--warm-up", "1"),
    *("--prompt-tokens", "uniform:16-24", "--output-tokens", "uniform:6-10"),
)
INVOKE = """
import json, sys
from enginebench.cli import COMMANDS, app
from typer.testing import CliRunner
words = [[name, "--help"] for name in COMMANDS] + json.loads(sys.argv[1])
results = [CliRunner().invoke(app, each) for each in words]
print(json.dumps([(each[0], result.exit_code, result.output) for each, result in zip(words, results)]))
"""
FAKE = ("--engine", "one=fake", "--engine", "two=fake", "-o", "ttft=0.02", "-o", "tpot=0.002", "--allow-invalid")
CLAIM = ("--allow-invalid",)  # a busy machine distorts such short runs
REAL = ("--engine", "transformers", "--engine", "mistralrs", "--allow-invalid")


@dataclass(frozen=True, slots=True)
class Installation:
    environment: Path
    folder: Path  # another one than the checkout, in which commands run

    @property
    def scenarios(self) -> Path:
        (package,) = self.environment.glob("lib/python*/site-packages/loadtests")
        return package

    def call(self, program: str, *arguments: str, code: int = 0) -> str:
        """Standard output. The variables are those of a new terminal."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "XDG_CACHE_HOME") if name in os.environ}
        done = subprocess.run(
            [self.environment / "bin" / program, *arguments],
            cwd=self.folder,
            env=kept | {"PATH": f"{self.environment / 'bin'}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == code, f"{program} {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def runs(self) -> list[Path]:
        return sorted(meta.parent for meta in self.folder.glob("runs/*/meta.json"))


def _installed(folder: Path, extra: str, *options: str) -> Installation:
    """The wheel is built and installed as a user does it, by the interpreter that runs the tests."""
    program = uv.find_uv_bin()
    environment = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}

    def call(*arguments: str) -> None:
        done = subprocess.run([program, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    call("build", "--quiet", "--python", sys.executable, "--out-dir", str(folder / "dist"))  # the wheel from the sdist
    call("venv", "--quiet", "--python", sys.executable, str(folder / "environment"))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    wheel, source = (folder / "dist" / f"enginebench-{version}{end}" for end in ("-py3-none-any.whl", ".tar.gz"))
    assert {"enginebench/studies/grids/baseline.toml"} <= set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(source) as archive:
        top = {name.split("/")[1] for name in archive.getnames()}
    packages = {"enginebench", "engines", "servers", "loadtests"}
    assert top == packages | {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
    python = str(folder / "environment" / "bin" / "python")
    call("pip", "install", "--quiet", "--python", python, *options, f"{wheel}{extra}")
    (folder / "elsewhere").mkdir()
    return Installation(folder / "environment", folder / "elsewhere")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return _installed(tmp_path_factory.mktemp("base"), "")


@pytest.fixture(scope="module")
def tested(base: Installation) -> Installation:
    """With two runs in it."""
    base.call("enginebench", "run", "concurrent", *FAKE, *SHORT, "--stages", "1,4")
    return base


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Pinned as in the development environment, so that torch is not fetched in two versions."""
    backend = ("--torch-backend", "cpu") if importlib.metadata.version("torch").endswith("+cpu") else ()
    pins = ("--constraint", str(ROOT / "requirements.lock"))
    return _installed(tmp_path_factory.mktemp("engines"), "[engines]", *pins, *backend)


def test_there_are_no_development_packages(base: Installation) -> None:
    code = "import importlib.metadata as m, json; print(json.dumps([d.name for d in m.distributions()]))"
    found = json.loads(base.call("python", "-c", code))
    assert "enginebench" in found
    assert not {"pytest-xdist", "ruff", "mypy", "openai", "torch", "transformers"} & set(found)


def test_every_command_explains_itself_and_runs_are_compared_and_planned(tested: Installation) -> None:
    assert "Load-test" in tested.call("enginebench", "--help")
    compare = ["compare", "runs", "--baseline", "one", *CLAIM]
    plan = ["plan", str(tested.runs()[0]), "--peak", "40users", "--slo", "ttft_p95=5", "--json"]
    results = json.loads(tested.call("python", "-c", INVOKE, json.dumps([compare, plan])))
    assert {code for _, code, _ in results} == {0}, [name for name, code, _ in results if code]
    assert [name for name, _, _ in results] == [*COMMANDS, "compare", "plan"]
    assert "two" in results[-2][2]
    assert json.loads(results[-1][2])


def test_doctor_starts_a_load_test_and_says_where_it_is_installed(base: Installation) -> None:
    checks = {check["name"]: check for check in json.loads(base.call("enginebench", "doctor", "--load-test", "--json"))}
    assert checks["Load test"]["ok"], checks["Load test"]
    assert checks["Scenarios"]["found"] == str(base.scenarios)


def test_a_run_is_recorded(tested: Installation) -> None:
    assert len(tested.runs()) == 2
    for run in tested.runs():
        outcomes = [record.outcome for record in read_requests(run)]
        assert len(outcomes) > 10
        assert set(outcomes) == {"ok"}


def test_plain_locust_runs_the_installed_scenario_by_two_processes(base: Installation, tmp_path: Path) -> None:
    with ScriptedServer() as server:
        base.call(
            "locust", "-f", str(base.scenarios / "concurrent.py"), "--headless", "--host", server.url, "--only-summary",
            "--stages", "2", "--stage-seconds", "2", "--runs", str(tmp_path), *processes_options(2),
        )  # fmt: skip
    (run,) = tmp_path.iterdir()
    assert read_meta(run).workers == 2
    assert len(list(read_requests(run))) == len(server.bodies) > 10


def test_reports_are_made_of_them(tested: Installation) -> None:
    files = [tested.folder / f"report.{suffix}" for suffix in ("md", "html", "csv")]
    outputs = [word for file in files for word in ("--output", file.name)]
    report = json.loads(tested.call("enginebench", "report", *map(str, tested.runs()), *CLAIM, *outputs, "--json"))
    assert {row["engine"] for row in report["rows"] if row["engine"]} == {"one", "two"}
    markdown, html, csv_text = (file.read_text() for file in files)
    assert "TTFT" in markdown
    assert "<svg" in html
    assert {row["engine"] for row in csv.DictReader(io.StringIO(csv_text))} >= {"one", "two"}


@pytest.mark.own_environment
def test_real_engines_are_served_and_compared(engines: Installation) -> None:
    answered = engines.call("enginebench", "run", "concurrent", *REAL, *SHORT, "--stages", "2")
    assert "tokens/s" in answered
    runs = engines.runs()
    assert {read_meta(run).label for run in runs} == {"transformers", "mistralrs"}
    for run in runs:
        assert {record.outcome for record in read_requests(run)} <= {"ok", "cut_off"}
        assert sum(record.output_tokens or 0 for record in read_requests(run)) > 5
    engines.call("enginebench", "compare", "runs", "--baseline", "transformers", *CLAIM)


def test_a_python_that_is_not_here_finds_wheels_of_everything(tmp_path: Path) -> None:
    options = ("--extra", "engines", "--extra", "bedrock", "--python-version", "3.14", "--only-binary", ":all:")
    command = [uv.find_uv_bin(), "pip", "compile", "pyproject.toml", *options, "--quiet", "-o", str(tmp_path / "pins")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "torch==" in (tmp_path / "pins").read_text()
