"""The command that adds a missing package to this installation, with the tool and source of the installation."""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

PROJECT = "enginebench"
UV_RECEIPT = "uv-receipt.toml"  # uv keeps it in the environment of each of its tools


def install_command(extra: str, environment: Path = Path(sys.prefix)) -> str:
    """Return a command such as `uv tool install --with-executables-from locust '/checkout[engines]'`"""
    receipt = environment / UV_RECEIPT
    if not receipt.exists():
        return f"pip install '{_source()}[{extra}]'"
    tool = tomllib.loads(receipt.read_text(encoding="utf-8")).get("tool", {})
    own: dict[str, Any] = next(
        (requirement for requirement in tool.get("requirements", ()) if requirement.get("name") == PROJECT), {}
    )
    extras = sorted({extra, *own.get("extras", ())})  # uv removes extras that are not named again
    return f"uv tool install --with-executables-from locust '{_source()}[{','.join(extras)}]'"


def _source() -> str:
    """Return the folder or file that this project was installed from (PEP 610); its name if from an index."""
    try:
        written = distribution(PROJECT).read_text("direct_url.json")
    except PackageNotFoundError:  # an engine's own environment
        written = None
    url = urlsplit(json.loads(written)["url"]) if written else None
    return unquote(url.path) if url is not None and url.scheme == "file" else PROJECT
