"""An engine that computes in a thread: it stops when its client disconnects, and reports log probabilities."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.served import CHAT, TEXT, RunningServer, body, running
from tests.support.servers.working_engine import SECRET_PATH, TOKEN
from validation.processes import http_request

PROGRAM = Path(__file__).parents[1] / "support" / "servers" / "working_engine.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("working") / "made"


@pytest.fixture(scope="module")
def server(made: Path) -> Iterator[RunningServer]:
    with running([sys.executable, str(PROGRAM), str(made)]) as one:
        yield one


@pytest.mark.parametrize("stream", [True, False])
def test_after_a_disconnect_the_engine_generates_one_more_token_at_most(
    stream: bool, server: RunningServer, made: Path
) -> None:
    """The token that is being computed when the client disconnects is the last; then the slot is free.

    The best of several, because a busy machine may be slow to tell the server that the client has gone.
    """
    more, freed = [], []
    for _ in range(6):
        made.write_text("")
        left = _leave_after_three_tokens(server, made, stream)
        while server.metric("requests_running"):
            time.sleep(0.002)
        freed.append(time.monotonic() - left)
        time.sleep(2 * TOKEN)
        more.append(sum(at > left for at in map(float, made.read_text().split())))
    assert min(more) <= 1, more
    assert min(freed) < 4 * TOKEN, freed  # a scrape, by which it is seen, takes time itself
    assert max(more) < 1_000, "of 4000 that were asked for"


def _leave_after_three_tokens(server: RunningServer, made: Path, stream: bool) -> float:
    """When the connection was closed."""
    content = json.dumps(body(4000, stream=stream)).encode()
    with server.connect() as connection:
        connection.sendall(http_request(CHAT, content))
        while len(made.read_text().split()) < 3:
            time.sleep(0.005)
    return time.monotonic()


def test_log_probabilities_where_the_engine_knows_them(server: RunningServer) -> None:
    from openai.types import Completion
    from openai.types.chat import ChatCompletion

    chat = ChatCompletion.model_validate(server.ask(2, logprobs=True, top_logprobs=2).json())
    assert chat.choices[0].logprobs is not None
    told = chat.choices[0].logprobs.content or []
    assert [(one.token, one.logprob, len(one.top_logprobs)) for one in told] == [(" a", -0.5, 2)] * 2
    text = Completion.model_validate(server.ask(2, TEXT, logprobs=1).json())
    assert text.choices[0].logprobs is not None
    assert text.choices[0].logprobs.token_logprobs == [-0.5, -0.5]
    assert text.choices[0].logprobs.top_logprobs == [{" a": -0.5, " 0": -1.0}] * 2
    streamed = server.ask(2, stream=True, logprobs=True).text
    assert streamed.count('"logprob":-0.5') == 2
    assert server.ask(2).json()["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("stream", [True, False])
def test_the_engines_own_figures_reach_the_client(stream: bool, server: RunningServer) -> None:
    answer = server.ask(2, stream=stream)
    last = answer.text.split("data: ")[-2] if stream else answer.text
    document = json.loads(last)
    assert document["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}
    assert (document["timing"]["engine_queue"], document["timing"]["engine_first_token"]) == (0.5, TOKEN)


def test_unsupported_features_are_refused(server: RunningServer) -> None:
    for field in ({"stop": ["x"]}, {"seed": 1, "temperature": 1}, {"min_tokens": 1}):
        refused = server.ask(2, **field)
        assert refused.status_code == 400
        assert "does not support" in refused.json()["error"]["message"]


def test_no_path_of_the_host_reaches_a_client(server: RunningServer) -> None:
    """The message of an unexpected exception is only for the log."""
    for stream in (False, True):
        answer = server.ask(2, TEXT, prompt="!", stream=stream)
        assert answer.status_code == 500
        assert answer.json()["error"]["message"] == "the engine failed (FileNotFoundError)."
        assert SECRET_PATH not in answer.text
