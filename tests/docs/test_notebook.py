"""The notebook of the Python API prints what is stored in it."""

import ast
import io
import json
import os
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def test_its_cells_print_what_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "docs")
    monkeypatch.setitem(os.environ, "COLUMNS", "80")
    cells = json.loads(Path("results-in-python.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    compared = 0
    for cell in cells:
        if cell["cell_type"] == "code":
            stored = "".join(line for output in cell["outputs"] for line in _text(output))
            assert _printed("".join(cell["source"]), names).split() == stored.split()
            compared += 1
    assert compared == 7


def _text(output: dict[str, Any]) -> list[str]:
    return list(output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"])


def _printed(source: str, names: dict[str, Any]) -> str:
    """What a cell prints, and the value of its last line."""
    tree = ast.parse(source)
    ends = tree.body[-1]
    last = ends.value if isinstance(ends, ast.Expr) else None
    if last is not None:
        tree.body.pop()
    with redirect_stdout(io.StringIO()) as output:
        exec(compile(tree, "cell", "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last), "cell", "eval"), names)
    return output.getvalue() + ("" if value is None else str(value))
