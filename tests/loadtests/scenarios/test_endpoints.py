"""A whole run through an API that is not OpenAI's, with its own credentials. Other APIs: client/test_dialects.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from enginebench.records.metrics import BY_NAME
from tests.support.loadtests.locust_process import start
from tests.support.servers.dialect_answers import OUTPUT_TOKENS, PROMPT_TOKENS
from tests.support.servers.scripted import Script, ScriptedServer

AWS = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_REGION": "us-east-1"}


def test_a_run_through_another_api(tmp_path: Path) -> None:
    with ScriptedServer(Script(ttft=0.1, engine=None, tokenizes=False)) as server:
        locust = start(
            server, tmp_path, "--endpoint", "bedrock", "--model", "a:model", "--stages", "2", "--stage-seconds", "1",
            "--extra-body", '{"top_k": 5}', environment=AWS,
        ).finish()  # fmt: skip
        asked: list[dict[str, Any]] = server.bodies[1:]  # the first was tried before the run
        assert all(sent["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKID/") for sent in server.headers)
    records = locust.records
    assert len(records) == len(asked) > 2
    assert {body["top_k"] for body in asked} == {5}
    assert {(one.outcome, one.prompt_tokens, one.output_tokens, one.chunks) for one in records} == {
        ("ok", PROMPT_TOKENS, OUTPUT_TOKENS, 3)
    }
    assert 0.099 < min(BY_NAME["ttft"].read(one) or 0.0 for one in records) < 0.15, "the others where there is a core"
    assert all(b"a-secret" not in path.read_bytes() for path in locust.run.iterdir())
