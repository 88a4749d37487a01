"""The scripted server's answers, next to those of chats that every calibration reads."""

from __future__ import annotations

import json
from pathlib import Path

import httpx

from loadtests.harness.calibration.calibrate import scripted_server


def test_completions_have_text_and_are_known_by_prompt_and_header(tmp_path: Path) -> None:
    body = {"model": "scripted", "prompt": 'Say "hi"', "max_tokens": 3, "stream": True}
    with scripted_server(0.001, 100, tmp_path / "truth.jsonl", ttft=0.01, spread=0) as port:
        url = f"http://127.0.0.1:{port}/v1/completions"
        answer = httpx.post(url, json=body, headers={"X-Request-ID": "r1"}, trust_env=False)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert [choice["text"] for event in events for choice in event["choices"]] == [" token"] * 3 + [""]
    truth = json.loads((tmp_path / "truth.jsonl").read_text())
    assert (truth["user"], json.loads(truth["prompt"]), truth["tokens"]) == ("r1", 'Say "hi"', 3)
