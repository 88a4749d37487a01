"""The text of one answer and where it ends: at a stop string, an end token, or the limit of tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from engines.contract.base import FinishReason, GenerateRequest
from engines.text.detokenize import Detokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class StopStrings:
    """Pass text on up to the first stop string, even if that arrives in pieces. One per request."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.met = False

    def add(self, text: str) -> str:
        """Return the part that may be sent now. Empty once `met`."""
        if not self._stops or self.met:
            return "" if self.met else text
        text = self._held + text
        if cuts := [at for stop in self._stops if (at := text.find(stop)) >= 0]:
            self.met, self._held = True, ""
            return text[: min(cuts)]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def step(self, text: str, finish: FinishReason | None) -> tuple[str, FinishReason | None]:
        """Return the part that may be sent now, and the reason if the answer ends with it: `finish`, with text that
        was held back, or a stop string."""
        ready = self.add(text)
        if self.met:
            return ready, "stop"
        return (ready, None) if finish is None else (ready + self._held, finish)


def _overlap(text: str, stop: str) -> int:
    """Return the number of characters at the end of `text` that may be the beginning of `stop`."""
    at = max(0, len(text) - len(stop) + 1)
    while (at := text.find(stop[0], at)) >= 0:
        if stop.startswith(text[at:]):
            return len(text) - at
        at += 1
    return 0


class AnswerText:
    """Detokenise, look for stop strings, and count tokens. One per request.

    `most` is the limit of the answer's tokens, `end_ids` the tokens with which the model ends an answer. Forced tokens
    belong to the prompt: whatever they are, the answer goes on after them.
    """

    def __init__(self, request: GenerateRequest, tokenizer: Tokenizer, end_ids: Collection[int], most: int) -> None:
        self._text = Detokenizer(tokenizer, request.prompt_token_ids)
        self._stops = StopStrings(request.stop)
        self._end_ids = () if request.ignore_eos else end_ids
        self._min_tokens, self._most = request.min_tokens, most
        self._produced, self._forced = 0, len(request.forced_token_ids)

    def add(self, id: int) -> tuple[str, FinishReason | None]:
        """Add a token. Return the text that may be sent now, and the reason if the answer ends here."""
        self._produced += 1
        ready = self._text.add(id)
        own = self._produced - self._forced
        if own > 0:
            if own > self._min_tokens:
                ready = self._stops.add(ready)
            if self._stops.met:
                return ready, "stop"
            if id in self._end_ids:
                return self._rest(ready, "stop")
        if self._produced >= self._most:
            return self._rest(ready, "length")
        return ready, None

    def _rest(self, ready: str, finish: FinishReason) -> tuple[str, FinishReason | None]:
        """Add the text that was held back, which may still complete a stop string."""
        more, met = self._stops.step(self._text.rest(), finish)
        return ready + more, met
