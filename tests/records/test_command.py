"""The command line as it is written down: no secrets, no paths of the machine where it was typed."""

import subprocess
import sys
from pathlib import Path

import pytest

from enginebench.records.command import publishable, typed_command


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        pytest.param(["--header", "A: x", "--seed", "1"], ("--header", "***", "--seed", "1"), id="a secret as a word"),
        pytest.param(["--header=A: x"], ("--header=***",), id="a secret after an equals sign"),
        pytest.param(["--model", "header"], ("--model", "header"), id="a value that is called like a secret"),
        pytest.param(["--runs", "{home}/work/runs"], ("--runs", "runs"), id="a path in the working folder"),
        pytest.param(["--runs={home}/work"], ("--runs=.",), id="the working folder itself"),
        pytest.param(["-o", "model={home}/models/a"], ("-o", "model=../models/a"), id="a path in the home folder"),
        pytest.param(["--traces", "/data/day.csv"], ("--traces", "/data/day.csv"), id="a path outside of both"),
        pytest.param(["http://127.0.0.1:8000/v1"], ("http://127.0.0.1:8000/v1",), id="an address"),
        pytest.param(["--slo=ttft_p95=0.5"], ("--slo=ttft_p95=0.5",), id="two equals signs"),
    ],
)
def test_secrets_are_hidden_and_paths_are_relative(
    words: list[str], shown: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path / "work")
    assert publishable([word.format(home=tmp_path) for word in words], {"--header"}) == shown


def test_a_program_is_named_as_it_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/enginebench", "run", "concurrent"])
    assert typed_command() == ("enginebench", "run", "concurrent")


def test_a_module_is_named_with_its_package(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    code = f"import sys; sys.path.append({str(Path(__file__).parents[2])!r}); "
    code += "from enginebench.records.command import typed_command"
    (tmp_path / "program/__main__.py").write_text(f"{code}\nprint(*typed_command())\n")
    command = [sys.executable, "-m", "program", "--seed", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "python -m program --seed 3\n"
