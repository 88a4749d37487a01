"""The engine of docs/adding-an-engine.md, extracted from the page and installed as a third-party package."""

from __future__ import annotations

import contextlib
import re
import sys
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from engines.contract import registry

PAGE = Path(__file__).parents[3] / "docs" / "adding-an-engine.md"
NAME = "parrot"


def block(language: str, name: str = "") -> str:
    """Return the page's only block of this kind."""
    title = f' title="{name}"' if name else ""
    (found,) = re.findall(rf"^```{language}{title}\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
    return str(found)


@contextlib.contextmanager
def installed(folder: Path, code: str | None = None) -> Iterator[None]:
    """Install in `folder`, as pip would, the module, its metadata and its entry point, also for child processes."""
    project = tomllib.loads(block("toml", "pyproject.toml"))["project"]
    (folder / "parrot_engine.py").write_text(block("python", "parrot_engine.py") if code is None else code)
    metadata = folder / f"parrot_engine-{project['version']}.dist-info"
    metadata.mkdir()
    named = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\n{named}")
    points = ConfigParser()
    points.read_dict(project["entry-points"])
    with (metadata / "entry_points.txt").open("w") as file:
        points.write(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder))
        patch.delitem(sys.modules, "parrot_engine", raising=False)
        registry._installed.cache_clear()
        yield
    registry._installed.cache_clear()
