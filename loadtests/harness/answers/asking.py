"""Asks one server for greedy answers, one at a time and many at once, and for the likelihood of a given text."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx

from loadtests.harness.answers.agreement import Answer
from loadtests.harness.client.access import Access
from loadtests.harness.client.answer import message_of

TIMEOUT = 600.0  # seconds for one answer: slow engines take long for many at once
CHAT = "/v1/chat/completions"
REFUSALS = (400, 404, 405, 422, 501)  # a busy or broken server answers otherwise
ALTERNATIVES = 20  # the most that OpenAI's API gives for a token


class NoAnswer(Exception):
    """The server gave no valid answer. One sentence."""


class Refused(NoAnswer):
    """The server refused the request."""


@dataclass(frozen=True, slots=True)
class Perplexity:
    """exp(−mean log-probability) of a text's tokens, each given those before it.

    A token that is not among the likeliest `ALTERNATIVES` counts as the last of them: `value` is then a lower bound.
    """

    value: float
    tokens: int
    outside: int  # tokens that were not among the alternatives


class Asking:
    """`async with Asking(url, access, model, tokens) as asking: …`"""

    def __init__(self, url: str, access: Access, model: str, tokens: int) -> None:
        """`tokens`: the most of one answer."""
        self._url = url
        self._model = model
        self._tokens = tokens
        self._with_logprobs = True
        self._http = httpx.AsyncClient(
            headers=dict(access.headers),
            verify=not access.insecure,
            timeout=TIMEOUT,
            trust_env=False,
            limits=httpx.Limits(max_connections=None),
        )

    async def __aenter__(self) -> Asking:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def alone(self, prompts: Sequence[str]) -> dict[str, Answer]:
        """One request at a time. Raises `NoAnswer`."""
        return {prompt: await self._answer(prompt) for prompt in prompts}

    async def together(self, prompts: Sequence[str], users: int, rounds: int) -> list[tuple[str, Answer]]:
        """Every prompt `rounds` times, in random order, `users` requests at once. Raises `NoAnswer`."""
        waiting = [prompt for _ in range(rounds) for prompt in prompts]
        Random(0).shuffle(waiting)
        answers: list[tuple[str, Answer]] = []

        async def user() -> None:
            while waiting:
                prompt = waiting.pop()
                answers.append((prompt, await self._answer(prompt)))

        async with asyncio.TaskGroup() as group:
            for _ in range(users):
                group.create_task(user())
        return answers

    async def perplexity(self, text: str) -> Perplexity | None:
        """`None` where the server has no `/tokenize` and `/detokenize` or returns no alternatives."""
        ids = (await self._optional("/tokenize", {"prompt": text})).get("tokens")
        if not isinstance(ids, list) or len(ids) < 2:
            return None
        logs, outside = [], 0
        for end in range(1, len(ids)):
            token = (await self._optional("/detokenize", {"tokens": [ids[end]]})).get("prompt")
            body = {"prompt": ids[:end], "max_tokens": 1, "temperature": 0, "logprobs": ALTERNATIVES}
            try:
                choice = (await self._post("/v1/completions", body))["choices"][0]
                likely: dict[str, float] = choice["logprobs"]["top_logprobs"][0]
            except (NoAnswer, KeyError, TypeError, IndexError):
                return None
            outside += token not in likely
            logs.append(likely[token] if token in likely else min(likely.values()))
        return Perplexity(math.exp(-sum(logs) / len(logs)), len(logs), outside)

    async def _answer(self, prompt: str) -> Answer:
        message = {"role": "user", "content": prompt}
        body: dict[str, Any] = {"messages": [message], "max_tokens": self._tokens, "temperature": 0}
        if self._with_logprobs:
            try:
                return _read(await self._post(CHAT, {**body, "logprobs": True}))
            except Refused:
                answer = _read(await self._post(CHAT, body))
                self._with_logprobs = False  # the server refused log-probabilities; many engines have none
                return answer
        return _read(await self._post(CHAT, body))

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = await self._http.post(self._url + path, json={"model": self._model, **body})
        except httpx.HTTPError as error:
            raise NoAnswer(f"{self._url}{path} did not answer ({str(error) or type(error).__name__}).") from None
        if not answer.is_success:
            raise (Refused if answer.status_code in REFUSALS else NoAnswer)(
                f"{self._url}{path} answered {answer.status_code}: {message_of(answer.content)}"
            )
        try:
            document = answer.json()
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise NoAnswer(f"{self._url}{path} did not answer with a JSON object.")
        return document

    async def _optional(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            return await self._post(path, body)
        except NoAnswer:
            return {}


def _read(document: dict[str, Any]) -> Answer:
    try:
        choice = document["choices"][0]
        text = choice["message"]["content"] or ""
    except (KeyError, TypeError, IndexError):
        raise NoAnswer("The server's answer has no message.") from None
    listed = (choice.get("logprobs") or {}).get("content")
    if not listed:
        return Answer(text)
    return Answer(text, tuple(one["token"] for one in listed), tuple(one["logprob"] for one in listed))
