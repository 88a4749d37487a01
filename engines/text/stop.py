"""Stop strings: which text may be sent, and which must wait because it could still become one."""

from __future__ import annotations

from collections.abc import Sequence

from engines.contract.base import FinishReason


class StopStrings:
    """Passes text on up to the first stop string, also where that arrives in pieces. One per request."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.met = False

    def add(self, text: str) -> str:
        """The part that may be sent now. Nothing once `met`."""
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
        """The part that may be sent now, and the reason where the answer ends with it: `finish`, with what was held
        back, or a stop string."""
        ready = self.add(text)
        if self.met:
            return ready, "stop"
        return (ready, None) if finish is None else (ready + self._held, finish)


def _overlap(text: str, stop: str) -> int:
    """The number of characters at the end of `text` that may be the beginning of `stop`."""
    for size in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
