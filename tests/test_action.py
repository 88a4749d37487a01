"""The GitHub Action runs here in a clean environment, and the workflows have no mistakes that actionlint knows."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.servers.scripted import ScriptedServer
from tests.support.servers.served import ROOT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
EXAMPLE = ROOT / "docs" / "ci" / "performance-gate.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
SHORT = "--rate 5 --stage-seconds 3 --warm-up 0 --prompt-tokens 16 --output-tokens 8 --allow-invalid"


def test_a_script_takes_inputs_from_its_environment_only() -> None:
    """An expression within a script would let an input run commands."""
    assert list(STEPS) == [
        *("Install enginebench", "Load test", "Gate", "Summary", "Comment"),
        "Keep the checks and the numbers of the runs",
    ]
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")
        assert ("run" in step) == ("shell" in step) == ("uses" not in step)
    named = set(re.findall(r"inputs\.([\w-]+)", (ROOT / "action.yml").read_text()))
    assert named == set(ACTION["inputs"])


def test_the_example_gives_inputs_that_the_action_has() -> None:
    steps = yaml.safe_load(EXAMPLE.read_text())["jobs"]["gate"]["steps"]
    (step,) = (step for step in steps if "/enginebench@" in step.get("uses", ""))
    required = {name for name, value in ACTION["inputs"].items() if value.get("required")}
    assert required <= set(step["with"]) <= set(ACTION["inputs"])


@pytest.mark.deployment
def test_actionlint_accepts_the_workflows_and_the_actions_inputs(tmp_path: Path) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    program = shutil.which("actionlint", path=path)
    assert program is not None, "actionlint is not installed: `make test-deployment` builds it"
    folder = tmp_path / ".github" / "workflows"  # actionlint reads the action that a workflow of the same checkout uses
    folder.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    shutil.copy(ROOT / "action.yml", tmp_path)
    for workflow in (*WORKFLOWS, EXAMPLE):
        text = re.sub(r"uses: OWNER/enginebench@\S+", "uses: ./", workflow.read_text())
        (folder / workflow.name).write_text(text.replace("[self-hosted, benchmark]", "self-hosted"))
    command = [program, "-no-color", "-shellcheck=", "-pyflakes="]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.deployment
def test_the_steps_save_a_baseline_and_judge_runs_against_it(tmp_path: Path) -> None:
    """The same runs are judged, so that nothing differs from the baseline."""

    def step(name: str, **inputs: str) -> None:
        values = {key: value.get("default", "") for key, value in ACTION["inputs"].items()} | inputs
        given = {
            variable: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: values[match[1]], text)
            for variable, text in STEPS[name].get("env", {}).items()
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]],
            cwd=tmp_path,
            env=given
            | {key: os.environ[key] for key in ("HOME", "LANG", "XDG_CACHE_HOME") if key in os.environ}
            | {
                "PATH": f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin",
                "RUNNER_TEMP": str(tmp_path / "temporary"),
                "GITHUB_ACTION_PATH": str(ROOT),
                "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            },
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr}"

    step("Install enginebench")
    with ScriptedServer() as server:
        step("Load test", url=server.url, load=SHORT)
    assert len(list(tmp_path.glob("enginebench-runs/*/meta.json"))) == 5
    step("Gate", **{"gate": "--allow-invalid", "save-baseline": "true"})
    assert (tmp_path / "performance" / "baseline").is_dir()
    assert not (tmp_path / "gate.md").exists()
    step("Gate", gate="--allow-invalid")
    step("Summary")
    assert (tmp_path / "summary.md").read_text() == (tmp_path / "gate.md").read_text()
    assert "<testsuite" in (tmp_path / "gate.xml").read_text()
