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
        pytest.param("file:///a%20b/checkout", None, "pip install '/a b/checkout[lmrs]'", id="a checkout"),
        pytest.param(None, None, "pip install 'enginebench[lmrs]'", id="an index"),
        pytest.param(
            "file:///checkout",
            "[tool]",
            "uv tool install --with-executables-from locust '/checkout[lmrs]'",
            id="a tool of uv's",
        ),
        pytest.param(
            "file:///checkout",
            '[tool]\nrequirements = [{ name = "locust" }, { name = "enginebench", extras = ["transformers"] }]',
            "uv tool install --with-executables-from locust '/checkout[lmrs,transformers]'",
            id="a tool of uv's keeps the extras that it has",
        ),
        pytest.param("https://host/a.whl", None, "pip install 'enginebench[lmrs]'", id="an address"),
    ],
)
def test_the_way_it_was_installed(
    url: str | None, receipt: str | None, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def distribution(name: str) -> Any:
        return Installed(url)

    monkeypatch.setattr(extras, "distribution", distribution)
    if receipt is not None:
        (tmp_path / UV_RECEIPT).write_text(receipt)
    assert install_command("lmrs", tmp_path) == command
