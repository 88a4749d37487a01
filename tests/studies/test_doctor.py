"""`enginebench doctor`: what a person reads, and which command comes next."""

import json

import pytest
from typer.testing import CliRunner

import engines.machine.checks
from enginebench.cli import app
from enginebench.studies.doctor import next_command
from enginebench.studies.quick.discovery import FoundServer
from engines.machine.checks import Check, check_build

NO_GPU, GPU = Check("GPU", False, "no driver", "Buy one."), Check("GPU", True, "H100, 80 GB")
SERVER = FoundServer("http://127.0.0.1:8000", "vLLM's port", ("smollm2",))


def ask(checks: list[Check], *arguments: str, code: int = 0) -> str:
    """What doctor prints of a machine with these checks and without a server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines.machine.checks, "examine", lambda _: checks)
        patch.setattr("enginebench.studies.quick.discovery.find_server", lambda: None)
        result = CliRunner().invoke(app, ["doctor", *arguments], env={"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture(scope="module")
def here() -> list[Check]:
    """This machine, which is examined once: that starts processes."""
    return engines.machine.checks.examine()


def test_doctor_says_what_is_there_and_what_to_do(here: list[Check]) -> None:
    shown = ask(here)
    for line in ("Python", "CPU cores", "Memory", "Disk for models", "Packages", "GPU", "Kernel receive stamps"):
        assert line in shown
    assert "enginebench works here; " in shown
    assert shown.splitlines()[-1].startswith("Next: enginebench ")


def test_doctor_as_json_has_a_remedy_for_whatever_is_missing(here: list[Check]) -> None:
    checks = json.loads(ask(here, "--json"))
    names = {check["name"] for check in checks}
    assert names >= {"Engine transformers", "Engine mistralrs", "Open files", "cargo"}
    assert names >= {f"GPU code of {name}" for name in ("transformers", "mistralrs", "candle", "burn")}
    assert "GPU code of fake" not in names
    assert all(check["remedy"] for check in checks if not check["ok"])


@pytest.mark.parametrize(
    ("checks", "code", "last"),
    [
        ([NO_GPU], 0, "Next: enginebench quick"),
        (
            [Check("Python", False, "2.7", "Newer.", required=True)],
            2,
            "enginebench cannot work here until this is fixed: Python.",
        ),
    ],
)
def test_doctor_fails_only_where_the_tool_cannot_work(checks: list[Check], code: int, last: str) -> None:
    shown = ask(checks, code=code)
    assert checks[0].remedy in shown
    assert shown.splitlines()[-1] == last
    assert ("1 optional item missing." in shown) == (code == 0)


def test_what_is_not_installed_is_not_called_ok() -> None:
    """Code for GPUs, where there is no GPU."""
    checks = [NO_GPU, *(check_build(engine, None, here=False, remedy="Install it.") for engine in ("a", "b"))]
    shown = ask(checks)
    (line,) = (line for line in shown.splitlines() if "not installed" in line)
    assert line.startswith("GPU code of 2 engines ")
    assert " ok " not in line
    assert "not needed a, b: not installed" in " ".join(line.split())
    assert "1 optional item missing." in shown


@pytest.mark.parametrize(
    ("checks", "server", "installed", "command"),
    [
        ([NO_GPU], SERVER, True, "enginebench quick http://127.0.0.1:8000"),
        ([GPU], SERVER, True, "enginebench quick http://127.0.0.1:8000"),
        ([NO_GPU], None, True, "enginebench quick"),
        ([GPU], None, False, "enginebench engines install vllm"),
        ([GPU], None, True, "enginebench run concurrent --engine vllm"),
    ],
)
def test_the_command_to_run_next(
    checks: list[Check], server: FoundServer | None, installed: bool, command: str
) -> None:
    assert " ".join(next_command(checks, server, lambda: installed)) == command
