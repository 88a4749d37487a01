"""How answers look on the wire: OpenAI's JSON and server-sent events.

A streamed token costs one escape and one join: everything else in its event is formatted once per request. Chunks that
became ready together are still one event each, but they travel in one write.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quote
from typing import Any, ClassVar, Literal

import msgspec

from engines.contract.base import FinishReason, TokenLogprob
from engines.process.stream import ReceivedChunk

Endpoint = Literal["chat", "completions"]
ENDPOINTS: tuple[Endpoint, ...] = ("chat", "completions")
DONE = b"data: [DONE]\n\n"

_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known when an answer is complete. Times in seconds."""

    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    queue: float
    prefill: float
    decode: float

    def usage(self) -> dict[str, int]:
        return _usage(self.prompt_tokens, self.completion_tokens)

    def timing(self) -> dict[str, float]:
        return {"queue": round(self.queue, 7), "prefill": round(self.prefill, 7), "decode": round(self.decode, 7)}


class Wire:
    """One answer's way onto the wire. Subclasses know what chat and text completions call their parts."""

    endpoint: ClassVar[Endpoint]
    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(
        self,
        model: str,
        fingerprint: str,
        prompt_tokens: int,
        *,
        include_usage: bool = False,
        continuous_usage: bool = False,
        echo: str = "",
    ) -> None:
        self.id = self.id_prefix + secrets.token_hex(12)
        self._common = {"created": int(time.time()), "model": model, "system_fingerprint": fingerprint}
        self._prompt_tokens = prompt_tokens
        self._include_usage = include_usage
        self._continuous = continuous_usage
        self._produced = 0
        self._echo = echo
        # `"usage":null` on every chunk but the last, where the client asked for a last one: so OpenAI does it.
        usage = {"usage": None} if include_usage else {}
        # The text is the one part that changes: format an event around a mark, and cut it there.
        mark = "\x00"
        event = self._event([self._piece(mark, None, None)], **usage).decode()
        self._before, self._after = event.split(quote(mark))
        self._between = self._after + self._before

    # Streams.

    def opening(self) -> bytes:
        """What precedes the first token."""
        raise NotImplementedError

    def chunks(self, chunks: Sequence[ReceivedChunk]) -> bytes:
        """One event per chunk that has text; empty where none has."""
        if self._continuous or any(chunk.logprobs for chunk in chunks):
            return b"".join(self._elaborate(chunk) for chunk in chunks)
        texts = [quote(chunk.text) for chunk in chunks if chunk.text]
        if not texts:
            return b""
        return f"{self._before}{self._between.join(texts)}{self._after}".encode()

    def closing(self, ending: Ending) -> bytes:
        """The finish reason, usage and timing, and the mark that nothing follows."""
        finish = self._piece("", ending.finish_reason, None, last=True)
        told = {"usage": ending.usage(), "timing": ending.timing()}
        if self._include_usage:
            return self._event([finish], usage=None) + self._event([], **told) + DONE
        return self._event([finish], **told) + DONE

    # Answers in one piece.

    def whole(self, chunks: Sequence[ReceivedChunk], ending: Ending) -> bytes:
        text = self._echo + "".join(chunk.text for chunk in chunks)
        logprobs = tuple(one for chunk in chunks for one in chunk.logprobs)
        choice = self._choice(text, ending.finish_reason, logprobs)
        return _json(
            {
                "id": self.id,
                "object": self.whole_object,
                **self._common,
                "choices": [choice],
                "usage": ending.usage(),
                "timing": ending.timing(),
            }
        )

    # The parts.

    def _event(self, choices: list[dict[str, Any]], **more: Any) -> bytes:
        document = {"id": self.id, "object": self.chunk_object, **self._common, "choices": choices, **more}
        return b"data: " + _json(document) + b"\n\n"

    def _elaborate(self, chunk: ReceivedChunk) -> bytes:
        self._produced += chunk.tokens
        if not chunk.text and not chunk.logprobs:
            return b""
        usage = _usage(self._prompt_tokens, self._produced) if self._continuous else None
        more = {"usage": usage} if self._continuous or self._include_usage else {}
        return self._event([self._piece(chunk.text, None, self._logprobs(chunk.logprobs))], **more)

    def _piece(self, text: str, finish: str | None, logprobs: Any, last: bool = False) -> dict[str, Any]:
        """A choice of a streamed chunk."""
        raise NotImplementedError

    def _choice(self, text: str, finish: str, logprobs: tuple[TokenLogprob, ...]) -> dict[str, Any]:
        """The choice of an answer in one piece."""
        raise NotImplementedError

    def _logprobs(self, logprobs: tuple[TokenLogprob, ...]) -> Any:
        raise NotImplementedError


class ChatWire(Wire):
    endpoint = "chat"
    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> bytes:
        usage = {"usage": None} if self._include_usage else {}
        delta = {"role": "assistant", "content": "", "refusal": None}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._event([choice], **usage)

    def _piece(self, text: str, finish: str | None, logprobs: Any, last: bool = False) -> dict[str, Any]:
        delta = {} if last else {"content": text}
        return {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}

    def _choice(self, text: str, finish: str, logprobs: tuple[TokenLogprob, ...]) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": message, "logprobs": self._logprobs(logprobs), "finish_reason": finish}

    def _logprobs(self, logprobs: tuple[TokenLogprob, ...]) -> dict[str, Any] | None:
        if not logprobs:
            return None
        content = [
            {
                **_token(one.token, one.logprob, one.bytes),
                "top_logprobs": [_token(*alternative) for alternative in one.top],
            }
            for one in logprobs
        ]
        return {"content": content, "refusal": None}


class TextWire(Wire):
    endpoint = "completions"
    id_prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._offset = len(self._echo)  # where in the text the next token begins

    def opening(self) -> bytes:
        if not self._echo:
            return b""
        usage = {"usage": None} if self._include_usage else {}
        return self._event([self._piece(self._echo, None, None)], **usage)

    def _piece(self, text: str, finish: str | None, logprobs: Any, last: bool = False) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def _choice(self, text: str, finish: str, logprobs: tuple[TokenLogprob, ...]) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": self._logprobs(logprobs), "finish_reason": finish}

    def _logprobs(self, logprobs: tuple[TokenLogprob, ...]) -> dict[str, Any] | None:
        if not logprobs:
            return None
        offsets = []
        for one in logprobs:
            offsets.append(self._offset)
            self._offset += len(one.token)
        return {
            "tokens": [one.token for one in logprobs],
            "token_logprobs": [one.logprob for one in logprobs],
            "top_logprobs": [{token: logprob for token, logprob, _ in one.top} for one in logprobs],
            "text_offset": offsets,
        }


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _token(token: str, logprob: float, data: tuple[int, ...] | None) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode() if data is None else data)}
