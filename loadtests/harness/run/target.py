"""What the server under test says of itself before the run: its models, its engine, how it counts tokens.

Only `/v1/models` is expected of a server, and not even that where a model is named. `/v1/engine` and `/tokenize` are
used where they exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import httpx

from loadtests.harness.run.options import Endpoint
from loadtests.harness.workload.workload import ASSUMED, INSTRUCTION, WORDS, WordTokens

PATIENCE = 30.0  # seconds for each of these questions


class Unfit(Exception):
    """The server cannot be tested as asked. One sentence for a person, with the way out."""


class Target:
    """Asks one server. `with Target(url, headers, insecure) as target: …`"""

    def __init__(self, url: str, headers: Mapping[str, str], insecure: bool) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            headers={**headers, "Accept-Encoding": "identity"}, verify=not insecure, timeout=PATIENCE, trust_env=False
        )

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def model(self, wanted: str | None) -> str:
        """The model to ask for: `wanted`, else the first one listed. Raises `Unfit` when the server is not there."""
        answer = self._ask("GET", "/v1/models")
        if wanted is not None:
            return wanted
        listed = _json(answer).get("data") if answer.is_success else None
        if answer.status_code in {401, 403}:
            raise Unfit(f"{self.url} wants an API key: give --api-key or set OPENAI_API_KEY.")
        if answer.status_code == 503:
            raise Unfit(f"{self.url} is not ready yet (503): try again when its model is loaded.")
        if not isinstance(listed, list) or not listed or not isinstance(listed[0], dict) or not listed[0].get("id"):
            raise Unfit(f"{self.url}/v1/models lists no model (HTTP {answer.status_code}): name one with --model.")
        return str(listed[0]["id"])

    def engine(self) -> dict[str, Any] | None:
        """What `/v1/engine` says; `None` where there is no such page."""
        answer = self._ask("GET", "/v1/engine")
        return (_json(answer) or None) if answer.is_success else None

    def word_tokens(self, model: str, endpoint: Endpoint) -> WordTokens:
        """Measured by the server's `/tokenize` (as vLLM has it), chat template included; assumed where it has none."""
        many = 256
        words = " ".join(Random("words").choices(WORDS, k=many))
        none, some = self._count(model, endpoint, INSTRUCTION), self._count(model, endpoint, words + INSTRUCTION)
        if none is None or some is None or some <= none:
            return ASSUMED[endpoint]
        return WordTokens(overhead=float(none), per_word=(some - none) / many, measured=True)

    def _count(self, model: str, endpoint: Endpoint, text: str) -> int | None:
        as_chat = {"model": model, "messages": [{"role": "user", "content": text}]}
        as_text = {"model": model, "prompt": text}
        for body in (as_chat, as_text) if endpoint == "chat" else (as_text,):
            answer = self._ask("POST", "/tokenize", body)
            count = _json(answer).get("count") if answer.is_success else None
            if isinstance(count, int):
                return count
        return None

    def _ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        try:
            return self._http.request(method, self.url + path, json=body)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise Unfit(
                f"cannot reach {self.url} ({reason}): start a server there (`enginebench serve`) or give its --host."
            ) from error
        except (httpx.InvalidURL, ValueError) as error:
            raise Unfit(
                f"`{self.url}` is no address of a server ({error}): give one such as http://127.0.0.1:8000."
            ) from error


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
