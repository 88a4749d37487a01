"""What the server under test reports before the run: its models, its engine, how it counts tokens.

Only `/v1/models` is expected of a server, and not even that where a model is named. `/v1/engine` and `/tokenize` are
used where they exist and answer as they should.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import httpx

from loadtests.harness.workload.words import ASSUMED, INSTRUCTION, WORDS, WordTokens

TIMEOUT = 30.0  # seconds for what must be answered
OPTIONAL_TIMEOUT = 5.0  # seconds for what may be left unanswered
MEASURED_WORDS = 256


class UnreachableServer(Exception):
    """The server cannot be tested as asked. One sentence for a person, with the way out."""


def origin_of(url: str) -> str:
    """A base URL as OpenAI's clients take it, ending in `/v1`, is fine too."""
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


class Target:
    """Asks one server. `with Target(url, headers, insecure) as target: …`"""

    def __init__(self, url: str, headers: Mapping[str, str], insecure: bool) -> None:
        self.url = origin_of(url)
        self._http = httpx.Client(
            headers={**headers, "Accept-Encoding": "identity"}, verify=not insecure, timeout=TIMEOUT, trust_env=False
        )

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def model(self, wanted: str | None) -> str:
        """The model to ask for: `wanted`, else the first one listed. Raises `UnreachableServer`."""
        answer = self._ask("GET", "/v1/models")
        if wanted is not None:
            return wanted
        listed = _json(answer).get("data") if answer.is_success else None
        if answer.status_code in {401, 403}:
            raise UnreachableServer(f"{self.url} wants an API key: give --api-key or set OPENAI_API_KEY.")
        if answer.status_code == 503:
            raise UnreachableServer(f"{self.url} is not ready yet (503): try again when its model is loaded.")
        if not isinstance(listed, list) or not listed or not isinstance(listed[0], dict) or not listed[0].get("id"):
            raise UnreachableServer(
                f"{self.url}/v1/models lists no model (HTTP {answer.status_code}): name one with --model."
            )
        return str(listed[0]["id"])

    def engine(self) -> dict[str, Any] | None:
        """What `/v1/engine` says; `None` where there is no such page."""
        return self._optional("GET", "/v1/engine") or None

    def word_tokens(self, model: str, endpoint: str) -> WordTokens:
        """Measured by the server's `/tokenize` (as vLLM has it), chat template included; assumed where it has none."""
        words = Random("words").choices(WORDS, k=MEASURED_WORDS)
        texts = (words[0], words[0] + INSTRUCTION, " ".join(words) + INSTRUCTION)
        counts = []
        for text in texts:
            count = self._count(model, endpoint, text)
            if count is None:
                return ASSUMED[endpoint]
            counts.append(count)
        one, with_instruction, all_words = counts
        per_word = (all_words - with_instruction) / (MEASURED_WORDS - 1)
        if per_word <= 0:
            return ASSUMED[endpoint]
        return WordTokens(one - per_word, float(with_instruction - one), per_word, measured=True)

    def _count(self, model: str, endpoint: str, text: str) -> int | None:
        as_chat = {"model": model, "messages": [{"role": "user", "content": text}]}
        as_text = {"model": model, "prompt": text}
        for body in (as_chat, as_text) if endpoint == "chat" else (as_text,):
            count = self._optional("POST", "/tokenize", body).get("count")
            if isinstance(count, int):
                return count
        return None

    def _optional(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """The JSON object that the server answers; empty where it answers otherwise, late or not at all."""
        try:
            answer = self._http.request(method, self.url + path, json=body, timeout=OPTIONAL_TIMEOUT)
        except httpx.HTTPError:
            return {}
        return _json(answer) if answer.is_success else {}

    def _ask(self, method: str, path: str) -> httpx.Response:
        try:
            return self._http.request(method, self.url + path)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise UnreachableServer(
                f"cannot reach {self.url} ({reason}): start a server there (`enginebench serve`) or give its --host."
            ) from error
        except (httpx.InvalidURL, ValueError) as error:
            raise UnreachableServer(
                f"`{self.url}` is no address of a server ({error}): give one such as http://127.0.0.1:8000."
            ) from error


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
