"""Locust used the obvious way: `FastHttpUser`, `iter_lines`, a clock around it; `client_accuracy.py` runs it.

This is how most published locustfiles for language models read their streams. The observed times go to the file named
in ENGINEBENCH_OBSERVED, one line of JSON per request.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

from locust import FastHttpUser, events, task

TOKENS = int(os.environ["ENGINEBENCH_TOKENS"])
observed: list[dict[str, Any]] = []
numbers = itertools.count()


class Asking(FastHttpUser):
    @task
    def ask(self) -> None:
        name = f"user-{next(numbers)}"
        body = {
            "model": "scripted",
            "messages": [{"role": "user", "content": "Tell me."}],
            "max_tokens": TOKENS,
            "stream": True,
            "user": name,
        }
        first = last = None
        tokens = 0
        start = time.perf_counter()
        for line in self.client.iter_lines("/v1/chat/completions", method="POST", json=body):
            if line.startswith("data: ") and not line.startswith("data: [DONE]"):
                choices = json.loads(line[6:])["choices"]
                if choices and choices[0]["delta"].get("content"):
                    last = time.perf_counter()
                    first = first or last
                    tokens += 1
        if first is not None and last is not None and tokens > 1:
            observed.append({"name": name, "ttft": first - start, "tpot": (last - first) / (tokens - 1)})


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _write(**_: Any) -> None:
    Path(os.environ["ENGINEBENCH_OBSERVED"]).write_text("".join(json.dumps(request) + "\n" for request in observed))
