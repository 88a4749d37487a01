"""Locust in its simplest form: `FastHttpUser`, `iter_lines` and a clock around it. `client_accuracy.py` runs it.

This is how most published locustfiles for language models read their streams. The observed times go to the file named
in ENGINEBENCH_OBSERVED, in the form of `vllm bench serve --save-detailed`, which `enginebench import` and `enginebench
referee` read.
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
        stamps = []
        start = time.perf_counter()
        for line in self.client.iter_lines("/v1/chat/completions", method="POST", json=body):
            if line.startswith("data: ") and not line.startswith("data: [DONE]"):
                choices = json.loads(line[6:])["choices"]
                if choices and choices[0]["delta"].get("content"):
                    stamps.append(time.perf_counter())
        if len(stamps) > 1:
            gaps = [later - earlier for earlier, later in itertools.pairwise(stamps)]
            observed.append({"name": name, "start_times": start, "ttfts": stamps[0] - start, "itls": gaps})


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _write(environment: Any, **_: Any) -> None:
    n, rate = len(observed), environment.stats.total.total_rps
    totals = {"completed": n, "total_input_tokens": 8 * n, "request_throughput": rate}
    lengths = {"input_lens": [8] * n, "output_lens": [len(request["itls"]) + 1 for request in observed]}
    lists = {field: [request[field] for request in observed] for field in ("name", "start_times", "ttfts", "itls")}
    users = {"model_id": "scripted", "max_concurrency": environment.runner.target_user_count}
    Path(os.environ["ENGINEBENCH_OBSERVED"]).write_text(json.dumps(totals | users | lengths | lists))
