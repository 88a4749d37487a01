"""The shipped scenarios, and the question that each of them answers."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

from enginebench.settings.schema import UserMistake, choose_from

NO_SCENARIO = {"__init__", "cli"}


def scenario_files() -> dict[str, Path]:
    """Return the shipped scenarios by name."""
    package = find_spec("loadtests")
    assert package is not None
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0])
    return {path.stem: path for path in sorted(folder.glob("*.py")) if path.stem not in NO_SCENARIO}


def find_scenario(name: str) -> Path:
    """Return the file of `concurrent`, or of another locustfile by its path. Raises `UserMistake`."""
    if name.endswith(".py"):
        if Path(name).is_file():
            return Path(name).absolute()
        raise UserMistake(f"the file {name} does not exist.")
    files = scenario_files()
    if name not in files:
        raise UserMistake(f"no scenario called `{name}`, and no such file; {choose_from(name, files)}")
    return files[name]


def scenario_list() -> str:
    """Return a line for each scenario: its name, and the question with which its docstring begins."""
    lines = []
    for name, path in scenario_files().items():
        begin = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
        lines.append(f"  {name:14}  {begin.partition('?')[0]}?\n")
    return "".join(lines)
