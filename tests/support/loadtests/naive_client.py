"""A load generator with known errors, which writes the JSON of vLLM: its TTFT is too high, and one request is missing.

    python tests/support/loadtests/naive_client.py URL FILE [LATE]

It sends one request after the other, and adds a sleep of LATE seconds to each TTFT.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from pathlib import Path

import httpx

REQUESTS, TOKENS, LATE = 6, 5, 0.05


def main(url: str, file: str, late: float = LATE) -> None:
    ttfts: list[float] = []
    itls: list[list[float]] = []
    starts: list[float] = []
    body = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": TOKENS, "stream": True}
    with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
        for _ in range(REQUESTS):
            started = time.time()
            stamps: list[float] = []
            with client.stream("POST", "/v1/chat/completions", json=body) as answer:
                for line in answer.iter_lines():
                    if '" token"' in line:
                        if not stamps:
                            time.sleep(late)
                        stamps.append(time.time())
            starts.append(started)
            ttfts.append(stamps[0] - started)
            itls.append([later - earlier for earlier, later in pairwise(stamps)])
    n = REQUESTS - 1
    document = {
        "model_id": "scripted",
        "completed": n,
        "total_input_tokens": n,
        "request_throughput": 1.0,
        "max_concurrency": 1,
        "input_lens": [1] * n,
        "output_lens": [TOKENS] * n,
        "start_times": starts[:n],
        "ttfts": ttfts[:n],
        "itls": itls[:n],
        "errors": [""] * n,
    }
    Path(file).write_text(json.dumps(document))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
