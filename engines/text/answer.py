"""The text of one answer, token by token, and where it ends: for engines that get token ids from their library."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from engines.contract.base import FinishReason, GenerateRequest
from engines.text.detokenize import Detokenizer
from engines.text.stop import StopStrings

if TYPE_CHECKING:
    from tokenizers import Tokenizer


class AnswerText:
    """Detokenises, looks for stop strings, and counts tokens. One per request.

    `most` is the limit of the answer's tokens, `end_ids` the tokens with which the model ends an answer.
    """

    def __init__(self, request: GenerateRequest, tokenizer: Tokenizer, end_ids: Collection[int], most: int) -> None:
        self._text = Detokenizer(tokenizer, request.prompt_token_ids)
        self._stops = StopStrings(request.stop)
        self._end_ids = () if request.ignore_eos else end_ids
        self._min_tokens, self._most = request.min_tokens, most
        self._produced = 0

    def add(self, id: int) -> tuple[str, FinishReason | None]:
        """The text that may be sent once this token is generated, and the reason where the answer ends with it."""
        self._produced += 1
        ready = self._text.add(id)
        if self._produced > self._min_tokens:
            ready = self._stops.add(ready)
        if self._stops.met:
            return ready, "stop"
        if id in self._end_ids:
            return self._rest(ready, "stop")
        if self._produced >= self._most:
            return self._rest(ready, "length")
        return ready, None

    def _rest(self, ready: str, finish: FinishReason) -> tuple[str, FinishReason | None]:
        """With what was held back; it may still complete a stop string."""
        more, met = self._stops.step(self._text.rest(), finish)
        return ready + more, met
