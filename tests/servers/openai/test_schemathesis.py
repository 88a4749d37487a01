"""The OpenAPI document against its own server: whatever it allows is taken, whatever it forbids is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.servers.served import served

MOST_TOKENS = "64"
HOOKS = Path(__file__).parents[2] / "support" / "servers" / "schemathesis_hooks.py"


def test_the_document_is_true(tmp_path: Path) -> None:
    """All of schemathesis' checks, on every path, with bodies from the schemas and bodies beside them."""
    with served(arguments=("--max-output-tokens", MOST_TOKENS)) as server:
        command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{server.url}/openapi.json"]
        options = ["--phases", "coverage,fuzzing", "--max-examples", "10", "--seed", "1"]
        done = subprocess.run(
            [*command, *options, "--no-color"],
            cwd=tmp_path,
            env=os.environ
            | {"SCHEMATHESIS_HOOKS": HOOKS.stem, "PYTHONPATH": str(HOOKS.parent), "MOST_TOKENS": MOST_TOKENS},
            capture_output=True,
            text=True,
            timeout=600,  # on a busy machine
        )
        assert server.client.get("/ready").status_code == 200
    assert done.returncode == 0, done.stdout
    assert "Selected: 10/10" in done.stdout
