"""The wire format of answers: OpenAI's JSON and server-sent events.

The parts of an event that stay the same are formatted once per request, so that a streamed token costs one escape and
one join. Chunks that arrive together remain separate events, and are sent in one write.
"""

from __future__ import annotations

import secrets
import time
from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quote
from typing import Any, ClassVar, Literal, get_args

import msgspec

from engines.contract.base import FinishReason, TokenLogprob, Usage
from engines.process.stream import ReceivedChunk

Endpoint = Literal["chat", "completions"]
ENDPOINTS: tuple[Endpoint, ...] = get_args(Endpoint)
LINE_ENDS = "\u0085\u2028\u2029"  # to Python's splitlines
DONE = b"data: [DONE]\n\n"
NO_FIGURES = Usage()

_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Ending:
    """Usage and timing of a complete answer. Times in seconds.

    `engine` holds the engine's own figures. Its token counts, from a server behind it, replace ours.
    """

    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    queue: float
    prefill: float
    decode: float
    engine: Usage = NO_FIGURES

    def usage(self) -> dict[str, Any]:
        prompt, completion = self.engine.prompt_tokens, self.engine.completion_tokens
        counts: dict[str, Any] = _usage(
            self.prompt_tokens if prompt is None else prompt,
            self.completion_tokens if completion is None else completion,
        )
        if self.engine.cached_tokens is not None:
            counts["prompt_tokens_details"] = {"cached_tokens": self.engine.cached_tokens}
        return counts

    def timing(self) -> dict[str, float]:
        parts = {
            "queue": self.queue,
            "prefill": self.prefill,
            "decode": self.decode,
            "engine_queue": self.engine.queue,
            "engine_first_token": self.engine.first_token,
        }
        return {name: round(seconds, 7) for name, seconds in parts.items() if seconds is not None}


class Wire:
    """Format one answer. Subclasses know the names that chat and text completions use."""

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
        self.model = model
        self._common = {"created": int(time.time()), "model": model, "system_fingerprint": fingerprint}
        self._prompt_tokens = prompt_tokens
        self._include_usage = include_usage
        self._continuous = continuous_usage
        self._produced = 0
        self._echo = echo
        # With `include_usage`, OpenAI sends `"usage":null` in every chunk but the last.
        self._no_usage = {"usage": None} if include_usage else {}
        # Only the text changes between events: format one around a mark, and split it there.
        mark = "\x00"
        event = self._event([self._piece(mark, None, None)], **self._no_usage).decode()
        self._before, self._after = event.split(quote(mark))
        self._between = self._after + self._before

    # Streams.

    def opening(self) -> bytes:
        """Return the event before the first token, if any."""
        raise NotImplementedError

    def chunks(self, chunks: Sequence[ReceivedChunk]) -> bytes:
        """Return one event per chunk that has text; empty if none has."""
        if self._continuous or any([chunk.logprobs for chunk in chunks]):  # noqa: C419  # nearly always one chunk
            return b"".join(self._elaborate(chunk) for chunk in chunks)
        texts = [quote(chunk.text) for chunk in chunks if chunk.text]
        if not texts:
            return b""
        return f"{self._before}{self._between.join(texts)}{self._after}".encode()

    def closing(self, ending: Ending) -> bytes:
        """Return the finish reason, usage and timing, and `[DONE]`."""
        finish = self._piece("", ending.finish_reason, None, last=True)
        numbers = {"usage": ending.usage(), "timing": ending.timing()}
        if self._include_usage:
            return self._event([finish], usage=None) + self._event([], **numbers) + DONE
        return self._event([finish], **numbers) + DONE

    # Without streaming.

    def whole(self, chunks: Sequence[ReceivedChunk], ending: Ending) -> bytes:
        text = self._echo + "".join(chunk.text for chunk in chunks)
        logprobs = tuple(logprob for chunk in chunks for logprob in chunk.logprobs)
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
        return b"data: " + _one_line(document) + b"\n\n"

    def _elaborate(self, chunk: ReceivedChunk) -> bytes:
        self._produced += chunk.tokens
        if not chunk.text and not chunk.logprobs:
            return b""
        more = {"usage": _usage(self._prompt_tokens, self._produced)} if self._continuous else self._no_usage
        return self._event([self._piece(chunk.text, None, self._logprobs(chunk.logprobs))], **more)

    def _piece(self, text: str, finish: str | None, logprobs: Any, last: bool = False) -> dict[str, Any]:
        """Return a choice of a streamed chunk."""
        raise NotImplementedError

    def _choice(self, text: str, finish: str, logprobs: tuple[TokenLogprob, ...]) -> dict[str, Any]:
        """Return the choice of an answer that is not streamed."""
        raise NotImplementedError

    def _logprobs(self, logprobs: tuple[TokenLogprob, ...]) -> Any:
        raise NotImplementedError


class ChatWire(Wire):
    endpoint = "chat"
    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> bytes:
        delta = {"role": "assistant", "content": "", "refusal": None}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._event([choice], **self._no_usage)

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
                **_token(token.token, token.logprob, token.bytes),
                "top_logprobs": [_token(*alternative) for alternative in token.top],
            }
            for token in logprobs
        ]
        return {"content": content, "refusal": None}


class TextWire(Wire):
    endpoint = "completions"
    id_prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, *args: Any, first: str | None = None, **kwargs: Any) -> None:
        """`first` is the prompt's first token, the only one without a log-probability; `None` if the prompt's tokens
        are not repeated."""
        super().__init__(*args, **kwargs)
        self._first = [] if first is None else [first]
        self._offset = len(self._echo)  # offset of the next token in the text
        self._characters = getincrementaldecoder("utf-8")("replace")  # a token may be a part of a character

    def opening(self) -> bytes:
        if not self._echo:
            return b""
        return self._event([self._piece(self._echo, None, None)], **self._no_usage)

    def _piece(self, text: str, finish: str | None, logprobs: Any, last: bool = False) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def _choice(self, text: str, finish: str, logprobs: tuple[TokenLogprob, ...]) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": self._logprobs(logprobs), "finish_reason": finish}

    def _logprobs(self, logprobs: tuple[TokenLogprob, ...]) -> dict[str, Any] | None:
        if not logprobs:
            return None
        offsets, first = [], self._first
        for token in logprobs:
            offsets.append(self._offset)
            self._offset += len(self._characters.decode(_bytes_of(token.token, token.bytes)))
        return {
            "tokens": [*first, *(token.token for token in logprobs)],
            "token_logprobs": [*(None for _ in first), *(token.logprob for token in logprobs)],
            "top_logprobs": [
                *(None for _ in first),
                *(_alternatives(token) for token in logprobs),
            ],
            "text_offset": [*(0 for _ in first), *offsets],
        }


def _one_line(document: dict[str, Any]) -> bytes:
    """Return JSON without any line ends, including Unicode's, at which a client could split it."""
    line = _json(document)
    if not line.isascii():
        for character in LINE_ENDS:
            line = line.replace(character.encode(), quote(character)[1:-1].encode())
    return line


def _alternatives(token: TokenLogprob) -> dict[str, float]:
    """Return log-probabilities by text: of the sampled token, and of the likeliest token with each text."""
    alternatives: dict[str, float] = {}
    for text, logprob, *_ in token.top:
        alternatives.setdefault(text, logprob)
    return {token.token: token.logprob} | alternatives


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _token(token: str, logprob: float, data: Sequence[int] | None = None) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(_bytes_of(token, data))}


def _bytes_of(token: str, data: Sequence[int] | None) -> bytes:
    """Return the token's bytes: `data`, which is set for a part of a character, or the text's bytes."""
    return token.encode() if data is None else bytes(data)
