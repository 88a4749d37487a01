"""The command that adds what is missing fits the installation: its tool, and where it came from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engines.machine import extras
from engines.machine.extras import UV_RECEIPT, install_command


class Installed:
    def __init__(self, url: str | None) -> None:
        self._written = None if url is None else json.dumps({"url": url})

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self._written


@pytest.mark.parametrize(
    ("url", "receipt", "command"),
    [
        pytest.param("file:///a%20b/checkout", False, "pip install '/a b/checkout[lmrs]'", id="a checkout"),
        pytest.param(None, False, "pip install 'enginebench[lmrs]'", id="an index"),
        pytest.param(
            "file:///checkout",
            True,
            "uv tool install --with-executables-from locust '/checkout[lmrs]'",
            id="a tool of uv's",
        ),
        pytest.param("https://host/a.whl", False, "pip install 'enginebench[lmrs]'", id="an address"),
    ],
)
def test_the_way_it_was_installed(
    url: str | None, receipt: bool, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def distribution(name: str) -> Any:
        return Installed(url)

    monkeypatch.setattr(extras, "distribution", distribution)
    if receipt:
        (tmp_path / UV_RECEIPT).touch()
    assert install_command("lmrs", tmp_path) == command
