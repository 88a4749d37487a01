"""A small OpenAI-like server that follows a test's script, on a thread of the test's own process."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass, field
from typing import Any

from tests.support.servers.dialect_answers import ANSWERS, Spoken


@dataclass
class Script:
    """Durations in seconds. Every answer has `tokens`, one per chunk; `statuses` replace 200 for the first requests."""

    ttft: float = 0.02
    tpot: float = 0.005
    tokens: int = 4
    statuses: list[int] = field(default_factory=list)
    retry_after: str | None = None
    refuses: dict[str, str] = field(default_factory=dict)  # fields of a body that are refused, with the sentence
    refusal: int = 400
    models: tuple[str, ...] = ("scripted-model",)
    owner: str = "scripted"
    engine: dict[str, Any] | None = field(default_factory=lambda: {"name": "scripted", "features": ["ignore_eos"]})
    tokenizes: bool = True
    tokenizes_chats: bool = True  # otherwise it tokenises only texts
    metrics: str | None = "enginebench_requests_running 3\npython_info 1\n"


class ScriptedServer:
    """`with ScriptedServer(Script(...)) as server:` listens on `server.url`; `server.bodies` has the requests."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = started.result(10)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        async def stop() -> None:
            self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                request, *lines = head.decode().split("\r\n")[:-2]
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, path, _ = request.split(" ")
                await self._answer(writer, method, path, headers, json.loads(body) if body else {})
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has left, or the test is over
        finally:
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, method: str, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> None:
        script = self.script
        if path == "/v1/models":
            listed = {
                "object": "list",
                "data": [{"id": name, "object": "model", "owned_by": script.owner} for name in script.models],
            }
            await _send(writer, 200, json.dumps(listed))
        elif path == "/v1/engine" and script.engine is not None:
            await _send(writer, 200, json.dumps(script.engine))
        elif path == "/metrics" and script.metrics is not None:
            await _send(writer, 200, script.metrics, "text/plain; version=0.0.4")
        elif path == "/tokenize" and script.tokenizes and (script.tokenizes_chats or "prompt" in body):
            count = tokens_of(body) - (0 if script.tokenizes_chats else TEMPLATE)
            words = str(body.get("prompt", "")).split()
            await _send(writer, 200, json.dumps({"count": count, "tokens": [hash(word) for word in words]}))
        elif method == "POST" and path in {"/v1/chat/completions", "/v1/completions"}:
            self.bodies.append(body)
            self.headers.append(headers)
            refused = next((why for name, why in script.refuses.items() if name in body), None)
            if refused is not None:
                await _send(writer, script.refusal, json.dumps({"error": {"message": refused, "type": "scripted"}}))
                return
            status = script.statuses.pop(0) if script.statuses else 200
            if status != 200:
                error = {"error": {"message": f"scripted {status}", "type": "scripted"}}
                await _send(writer, status, json.dumps(error), retry_after=script.retry_after)
            elif body.get("stream"):
                await self._stream(writer, path, body)
            else:
                await self._whole(writer, path, body)
        elif method == "POST" and (spoken := _spoken_at(path)) is not None:
            self.bodies.append(body)
            self.headers.append(headers)
            await self._speak(writer, spoken, path.endswith("-stream") or bool(body.get("stream")))
        else:
            await _send(writer, 404, json.dumps({"error": {"message": "no such page", "type": "not_found"}}))

    async def _stream(self, writer: asyncio.StreamWriter, path: str, body: dict[str, Any]) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await writer.drain()
        for number in range(self.script.tokens):
            await asyncio.sleep(self.script.tpot if number else self.script.ttft)
            choice = {"delta": {"content": "a "}} if "chat" in path else {"text": "a "}
            await _event(writer, json.dumps({"choices": [{"index": 0, **choice}]}))
        usage = {"usage": self._usage(body)} if body.get("stream_options") else {}
        await _event(writer, json.dumps({"choices": [], **usage, "timing": TIMING}))
        await _event(writer, "[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def _whole(self, writer: asyncio.StreamWriter, path: str, body: dict[str, Any]) -> None:
        await asyncio.sleep(self.script.ttft + self.script.tpot * (self.script.tokens - 1))
        text = "a " * self.script.tokens
        choice = {"message": {"role": "assistant", "content": text}} if "chat" in path else {"text": text}
        document = {"choices": [{"index": 0, **choice}], "usage": self._usage(body), "timing": TIMING}
        await _send(writer, 200, json.dumps(document))

    async def _speak(self, writer: asyncio.StreamWriter, spoken: Spoken, streamed: bool) -> None:
        """Send the answer of another API in that API's format."""
        if not streamed:
            writer.write(spoken.whole)
            await writer.drain()
            return
        writer.write(spoken.head)
        await _chunk(writer, spoken.before)
        for number, word in enumerate(spoken.words):
            await asyncio.sleep(self.script.tpot if number else self.script.ttft)
            await _chunk(writer, word)
        await _chunk(writer, spoken.after)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _usage(self, body: dict[str, Any]) -> dict[str, int]:
        return {"prompt_tokens": tokens_of(body), "completion_tokens": self.script.tokens}


TEMPLATE = 7  # tokens


def tokens_of(body: dict[str, Any]) -> int:
    """Count a prompt's tokens: one per word, and those of the template."""
    texts = [str(message.get("content")) for message in body["messages"]] if "messages" in body else [body["prompt"]]
    return TEMPLATE + sum(len(text.split()) for text in texts)


TIMING = {"queue": 0.001, "prefill": 0.002, "decode": 0.003}


def _spoken_at(path: str) -> Spoken | None:
    if path.startswith("/model/"):
        return ANSWERS["bedrock"]
    return {"/v1/responses": ANSWERS["responses"], "/v1/messages": ANSWERS["messages"]}.get(path)


async def _event(writer: asyncio.StreamWriter, data: str) -> None:
    await _chunk(writer, f"data: {data}\n\n".encode())


async def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


async def _send(
    writer: asyncio.StreamWriter, status: int, body: str, kind: str = "application/json", retry_after: str | None = None
) -> None:
    wait = f"Retry-After: {retry_after}\r\n" if retry_after else ""
    head = f"HTTP/1.1 {status} Scripted\r\nContent-Type: {kind}\r\n{wait}Content-Length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    await writer.drain()
