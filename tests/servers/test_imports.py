"""What a process that only serves imports."""

from __future__ import annotations

import re
import sys

from tests.support.servers.served import COMMAND, started

# Packages of the analysis, of the load tests and of engines. The fake engine needs no tokenizer either.
FOREIGN = {
    *("numpy", "pandas", "polars", "scipy"),
    *("gevent", "geventhttpclient", "locust", "httpx"),
    *("huggingface_hub", "mistralrs", "tokenizers", "torch", "transformers"),
    *("enginebench.analysis", "enginebench.records", "loadtests"),
}


def test_a_serving_process_imports_no_package_of_the_other_rooms() -> None:
    with started([sys.executable, "-X", "importtime", *COMMAND[1:], "fake"]) as (server, output):
        server.client.get("/metrics").raise_for_status()
        server.ask(2).raise_for_status()
        assert server.stop() == 0
        assert server.process.stderr is not None
        output += server.process.stderr.read()
    modules = re.findall(r"^import time:.*\| +([\w.]+)$", output, re.MULTILINE)
    assert {"fastapi", "uvicorn", "msgspec", "servers.app"} <= set(modules)
    packages = {".".join(module.split(".")[:depth]) for module in modules for depth in (1, 2)}
    assert not packages & FOREIGN
