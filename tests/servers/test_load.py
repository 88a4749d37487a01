"""Queues, deadlines, disconnects, engine failures and shutdown: every request is counted once."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.prometheus import answers
from tests.support.servers.served import CHAT, TEXT, RunningServer, body, served, until
from validation.processes import http_request


@pytest.fixture(scope="module")
def narrow() -> Iterator[RunningServer]:
    """Two run, two wait; 10 ms a token."""
    with served("concurrency=2", "tpot=0.01", arguments=("--queue-size", "2")) as running:
        yield running


def outcomes(server: RunningServer, endpoint: str = "chat") -> dict[str, float]:
    names = ("ok", "cancelled", "rejected", "bad_request", "timeout", "engine_error", "unavailable")
    return {name: server.metric("requests_total", outcome=name, endpoint=endpoint) or 0 for name in names}


def gained(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def idle(server: RunningServer) -> bool:
    return server.metric("requests_running") == 0 and server.metric("requests_waiting") == 0


@contextlib.contextmanager
def occupied(server: RunningServer, streams: int, tokens: int = 100_000) -> Iterator[list[Iterator[bytes]]]:
    """So many streams that have begun and will not end by themselves; they are left at the end."""
    with contextlib.ExitStack() as stack:
        streams_begun = []
        for _ in range(streams):
            client = stack.enter_context(httpx.Client(base_url=server.url, timeout=30, verify=False))
            response = stack.enter_context(client.stream("POST", CHAT, json=body(tokens, stream=True)))
            reads = response.iter_raw()  # kept: a stream whose iterator is gone is closed
            next(reads)
            streams_begun.append(reads)
        yield streams_begun


def test_metrics_count_requests_and_tokens_exactly() -> None:
    with served() as server:
        assert server.metric("generation_tokens_total") == 0, "the warm-up is nobody's request"
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda tokens: server.client.post(CHAT, json=body(tokens)), range(1, 41)))
        streamed = [server.ask(5, TEXT, stream=True) for _ in range(10)]
        server.ask(1, temperature="hot")
        server.ask(1, model="other")
        usages = [answer.json()["usage"] for answer in answers]
        assert server.metric("generation_tokens_total") == sum(range(1, 41)) + 50
        assert server.metric("prompt_tokens_total") == sum(usage["prompt_tokens"] for usage in usages) + 10 * len("hi")
        assert outcomes(server) == dict.fromkeys(outcomes(server), 0) | {"ok": 40, "bad_request": 2}
        assert outcomes(server, "completions")["ok"] == len(streamed) == 10
        for histogram in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_prefill_time"):
            assert server.metric(f"{histogram}_seconds_count") == 50
        assert server.metric("request_decode_time_seconds_count") == 50
        # Gaps between chunks: one fewer than chunks, and the fake engine makes a chunk of every token.
        assert server.metric("inter_chunk_latency_seconds_count") == sum(range(1, 41)) + 50 - 50
        assert server.metric("engine_ready") == 1
        assert server.metric("engine_max_concurrency") == 256
        until(lambda: (server.metric("engine_memory_bytes") or 0) > 1e6, "the engine has told its memory")
        assert server.metric("kv_cache_usage_ratio") is None
        assert server.metric("build_info", engine="fake", model="fake", device="none") == 1


@pytest.mark.alone
def test_server_and_client_agree_on_the_time_to_first_token() -> None:
    """What the client sees is what the server says and the way there and back: never less, and under 2 ms more.

    That is the median of the best of three series, because a busy machine can make any of them late.
    """
    with served("ttft=0.02", "tpot=0.005", arguments=("--warm-up-tokens", "0")) as server:
        with server.connect() as connection:
            series = [[_first_token(connection) for _ in range(20)] for _ in range(3)]
        seen, said = (sum(one[side] for each in series for one in each) for side in (0, 1))
        assert server.metric("time_to_first_token_seconds_count") == 60
        assert server.metric("time_to_first_token_seconds_sum") == pytest.approx(said, abs=60e-7)  # rounded in `timing`
    assert seen > said > 60 * 0.02
    assert min(seen - said for each in series for seen, said in each) > 0
    assert min(statistics.median(seen - said for seen, said in each) for each in series) < 0.002


def _first_token(connection: socket.socket) -> tuple[float, float]:
    """Seconds to the first token: as the client sees them, from its write on, and as the server says in `timing`."""
    request = http_request(CHAT, json.dumps(body(2, stream=True)).encode(), keep_alive=True)
    answer, seen = b"", None
    began = time.perf_counter()
    connection.sendall(request)
    while not answer.endswith(b"0\r\n\r\n"):
        answer += connection.recv(65536)
        if seen is None and b'"content":" the"' in answer:
            seen = time.perf_counter() - began
    assert seen is not None
    timing = json.loads(answer.rpartition(b'"timing":')[2].partition(b"}")[0] + b"}")
    return seen, timing["queue"] + timing["prefill"]


def test_a_full_queue_refuses_and_says_when_to_come_back(narrow: RunningServer) -> None:
    before = outcomes(narrow)
    with ThreadPoolExecutor(2) as pool, occupied(narrow, 2):
        waiting = [pool.submit(narrow.ask, 1) for _ in range(2)]
        until(lambda: narrow.metric("requests_waiting") == 2, "two requests wait")
        assert narrow.metric("requests_running") == 2
        refused = narrow.ask(1)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) >= 1
        with narrow.connect() as connection:  # refused by its headers: no byte of the body is waited for or parsed
            connection.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n".encode())
            connection.sendall(b"Content-Length: 100000\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 429 ")
        assert narrow.client.post(CHAT, content=b"{}", headers={"content-type": "text/plain"}).status_code == 415
        assert not any(one.done() for one in waiting)
    # Those who ran have left, so those who waited were served.
    assert [one.result().status_code for one in waiting] == [200, 200]
    until(lambda: idle(narrow), "all requests have ended")
    assert gained(before, outcomes(narrow)) == {"ok": 2, "cancelled": 2, "rejected": 2, "bad_request": 1}


def test_a_disconnect_in_the_queue_is_counted(narrow: RunningServer) -> None:
    until(lambda: idle(narrow), "the server is idle")
    before = outcomes(narrow)
    with occupied(narrow, 2):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(narrow.url + CHAT, json=body(1), timeout=0.3)
        until(lambda: narrow.metric("requests_waiting") == 0, "no request waits")
        assert narrow.metric("requests_running") == 2
    until(lambda: idle(narrow), "all requests have ended")
    assert gained(before, outcomes(narrow)) == {"cancelled": 3}


def test_deadlines(narrow: RunningServer) -> None:
    until(lambda: idle(narrow), "the server is idle")
    before = outcomes(narrow)
    late = narrow.ask(100_000, timeout=0.2)
    assert late.status_code == 504
    assert late.json()["error"]["type"] == "timeout_error"
    with occupied(narrow, 2):
        assert narrow.ask(1, timeout=0.1, stream=True).status_code == 504  # while it waits, a stream has no head yet
    until(lambda: idle(narrow), "all requests have ended")
    cut = narrow.ask(100_000, timeout=2, stream=True)  # in which a busy machine has begun it
    assert cut.status_code == 200
    *chunks, last, end = cut.text.split("\n\n")
    assert chunks
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "timeout_error"
    assert end == ""
    assert "[DONE]" not in cut.text
    until(lambda: idle(narrow), "the slots are free")
    assert gained(before, outcomes(narrow)) == {"timeout": 3, "cancelled": 2}


def test_a_client_that_reads_no_longer_does_not_hold_its_request() -> None:
    content = json.dumps(body(100_000, stream=True, timeout=1)).encode()
    with served() as server, server.connect() as connection:
        connection.sendall(http_request(CHAT, content))
        until(lambda: outcomes(server)["timeout"] == 1, "it is counted", seconds=30)


def test_an_engine_that_fails_before_and_after_the_first_token() -> None:
    with served("fail_rate=1", "fail_after=3", "tpot=0.001", arguments=("--warm-up-tokens", "0")) as server:
        answer = server.ask(9)
        assert answer.status_code == 500
        assert answer.json()["error"] == {
            "message": "the fake engine was set to fail this request.",
            "type": "server_error",
            "param": None,
            "code": "engine_error",
        }
        streamed = server.ask(9, stream=True).text
        assert '"code":"engine_error"' in streamed
        assert "[DONE]" not in streamed
        until(lambda: idle(server), "the slots are free")
        assert outcomes(server)["engine_error"] == 2
        assert server.metric("time_to_first_token_seconds_count") == 2
        assert server.metric("e2e_request_latency_seconds_count") == 0  # only complete answers


def test_a_killed_engine_is_restarted_and_running_requests_get_an_error() -> None:
    with served("tpot=0.01") as server:
        with occupied(server, 2, tokens=5_000) as streams:
            server.engine_process().send_signal(signal.SIGKILL)
            for stream in streams:
                rest = b"".join(stream).decode()
                assert '"code":"engine_crashed"' in rest
                assert "SIGKILL" in rest
        refused = server.ask(1)
        if refused.status_code != 200:  # it may be back already
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) >= 1
        until(lambda: server.client.get("/ready").status_code == 200, "the engine is back")
        assert server.ask(3).status_code == 200
        assert server.metric("engine_restarts_total") == 1
        assert outcomes(server)["engine_error"] == 2
        assert server.metric("requests_running") == 0


def test_requests_that_wait_when_the_engine_crashes_wait_for_the_restarted_one() -> None:
    with served("tpot=0.01", "concurrency=2", "load_time=1") as server, ThreadPoolExecutor(4) as pool:
        with occupied(server, 2, tokens=5_000) as streams:
            waiting = [pool.submit(server.ask, 3) for _ in range(3)]
            impatient = pool.submit(server.ask, 3, timeout=0.6)
            until(lambda: server.metric("requests_waiting") == 4, "four requests wait")
            server.engine_process().send_signal(signal.SIGKILL)
            for stream in streams:
                assert '"code":"engine_crashed"' in b"".join(stream).decode()
        assert impatient.result().status_code == 504
        answers = [one.result() for one in waiting]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert all(answer.json()["timing"]["queue"] > 1 for answer in answers), "the time of the restart is waiting"
        assert server.metric("engine_restarts_total") == 1


@pytest.mark.alone
def test_a_slow_reader_changes_no_duration() -> None:
    """The engine is done after a moment; its client reads the answer three seconds later."""
    content = json.dumps(body(30_000, stream=True)).encode()
    with served() as server, server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        connection.sendall(http_request(CHAT, content))
        time.sleep(3)
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        assert answer.count('"content":" ') == 30_000
        decode = float(re.findall(r'"decode":([0-9.e-]+)', answer)[-1])
        assert decode < 2
        assert (server.metric("e2e_request_latency_seconds_sum") or 9) < 2.5


def test_a_restarted_engine_is_warmed_up_before_requests_are_accepted() -> None:
    with served("ttft=2", "crash_after=3") as server:
        assert server.ask(1).status_code == 200
        server.engine_process().kill()
        until(lambda: server.metric("engine_restarts_total") == 1, "the engine is started again")
        engine = server.engine_process()
        until(lambda: server.client.get("/ready").status_code == 200, "the engine is back")
        assert time.time() - engine.create_time() > 2, "its own first token takes so long"
        assert [server.ask(1).status_code for _ in range(2)] == [200, 500], "of three requests, the first was ours"
        assert server.metric("generation_tokens_total") == 2


def test_no_request_is_accepted_before_the_engine_is_loaded() -> None:
    """`/ready` says no, `/health` says yes, and a request is refused with a reason."""
    import subprocess

    from tests.support.servers.served import COMMAND, ROOT

    command = [*COMMAND, "fake", "-o", "load_time=1.5"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        with httpx.Client(base_url=url, timeout=30) as client:
            until(lambda: answers(client, "/health"), "the server listens")
            assert client.get("/health").json()["state"] == "loading"
            for response in (client.get("/ready"), client.get("/v1/models"), client.post(CHAT, json=body())):
                assert response.status_code == 503
                assert response.json()["error"]["code"] == "engine_loading"
                assert response.headers["retry-after"] == "1"
            assert "enginebench_engine_ready{" in client.get("/metrics").text
            until(lambda: client.get("/ready").status_code == 200, "the engine is ready")
            assert client.post(CHAT, json=body()).status_code == 200
            assert 'outcome="unavailable"} 1.0' in client.get("/metrics").text
    finally:
        process.terminate()
        process.wait(20)
        assert process.stderr is not None
        process.stderr.close()


def test_sigterm_lets_running_requests_finish_and_refuses_new_ones() -> None:
    with served("tpot=0.02") as server, ThreadPoolExecutor(4) as pool:
        running = [pool.submit(server.ask, 75) for _ in range(3)]
        until(lambda: server.metric("requests_running") == 3, "three requests run")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.client.get("/health").json()["state"] == "draining", "the server drains")
        refused = server.ask(1)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "engine_draining"
        assert server.client.get("/ready").status_code == 503
        answers = [one.result() for one in running]
        assert [answer.json()["usage"]["completion_tokens"] for answer in answers] == [75, 75, 75]
        assert server.process.wait(20) == 0


def test_draining_has_an_end() -> None:
    with served("tpot=0.02", arguments=("--drain-timeout", "0.3")) as server, occupied(server, 1) as (stream,):
        assert server.stop() == 0
        rest = b"".join(stream).decode()
        assert '"code":"engine_draining"' in rest


def test_an_answer_that_had_not_begun_when_draining_ends_is_refused_with_retry_after() -> None:
    arguments = ("--drain-timeout", "0.3", "--warm-up-tokens", "0")
    with served("ttft=600", arguments=arguments) as server, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.ask, 1)
        until(lambda: server.metric("requests_running") == 1, "the request runs")
        assert server.stop() == 0
        refused = waiting.result()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_draining")
        assert refused.headers["retry-after"] == "1"


def test_a_second_signal_ends_it_at_once() -> None:
    with served("tpot=0.02", arguments=("--drain-timeout", "600")) as server, occupied(server, 1):
        engine = server.engine_process()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.client.get("/health").json()["state"] == "draining", "the server drains")
        server.stop()
        until(lambda: not engine.is_running(), "the engine's process is gone")


def test_it_stops_though_no_one_reads_its_standard_error_any_more() -> None:
    with served() as server:
        assert server.process.stderr is not None
        server.process.stderr.close()
        assert server.stop() == 0
