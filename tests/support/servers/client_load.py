"""Clients of every kind at once: patient ones, one who leaves early, one who asks wrongly."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx


class Load:
    """`users` ask again as soon as they have an answer of `tokens` tokens; one leaves early, and one asks wrongly."""

    def __init__(self, server: str, users: int, tokens: int) -> None:
        self._url = f"http://{server}/v1/chat/completions"
        self._tokens = tokens
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        with _client() as alone:  # once while there is certainly a place: later it may find none
            self.outcomes[self._leave(alone)] += 1
            self.outcomes[self._ask_wrongly(alone)] += 1
        asked = [self._ask] * users + [self._leave, self._ask_wrongly]
        self._threads = [threading.Thread(target=self._repeat, args=(once,), daemon=True) for once in asked]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let everybody finish."""
        self._over.set()
        for thread in self._threads:
            thread.join(30)

    def _repeat(self, once: Callable[[httpx.Client], str]) -> None:
        with _client() as client:
            while not self._over.is_set():
                outcome = once(client)
                with self._lock:
                    self.outcomes[outcome] += 1
                if outcome != "ok":
                    self._over.wait(0.3)

    def _body(self, tokens: int, **fields: Any) -> dict[str, Any]:
        return {
            "messages": [{"role": "user", "content": "How are you?"}],
            "max_tokens": tokens,
            "stream": True,
            "temperature": 0,
        } | fields

    def _ask(self, client: httpx.Client) -> str:
        answer = client.post(self._url, json=self._body(self._tokens))
        return {200: "ok", 429: "rejected"}.get(answer.status_code, f"HTTP {answer.status_code}: {answer.text}")

    def _leave(self, client: httpx.Client) -> str:
        with client.stream("POST", self._url, json=self._body(100_000)) as answer:
            if answer.status_code == 429:
                return "rejected"
            next(answer.iter_lines())
        return "cancelled"

    def _ask_wrongly(self, client: httpx.Client) -> str:
        answer = client.post(self._url, json=self._body(self._tokens, temperature="hot"))
        # A full queue refuses it by its headers, before it is seen to be wrong.
        return {400: "bad_request", 429: "rejected"}.get(
            answer.status_code, f"HTTP {answer.status_code}: {answer.text}"
        )


def _client() -> httpx.Client:
    return httpx.Client(timeout=30, verify=False)
