"""What the server under test reports before the run: its models, its engine, how it counts tokens.

Only `/v1/models` is expected of a server, and not even that where a model is named. `/v1/engine` and `/tokenize` are
used where they exist and answer as they should.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from enginebench.records.plain_text import plain_json
from enginebench.records.quality import NO_WEIGHTS, TEXT, TOP, Quality
from enginebench.records.run import ENGINE, as_typed
from enginebench.settings.schema import UserMistake
from loadtests.harness.client.access import KEY_VARIABLE, Access
from loadtests.harness.client.address import origin_of
from loadtests.harness.client.answer import Answer, message_of
from loadtests.harness.client.dialects.dialect import Dialect, ModelRequest
from loadtests.harness.client.redaction import redacted

logger = logging.getLogger(__name__)

TIMEOUT = 30.0  # seconds for what must be answered
ERRNO = re.compile(r"^\[Errno -?\d+\] ")
PLAIN_ANSWER = re.compile(r"WRONG_VERSION_NUMBER|UNKNOWN_PROTOCOL|RECORD_LAYER_FAILURE|record layer failure")
RANDOM = "random:"  # before the name of a model without trained weights, as our servers give it
QUALITY_TIMEOUT = 300.0  # seconds: an engine without batching reads the text token by token
OPTIONAL_TIMEOUT = 5.0  # seconds for what may be left unanswered


class UnreachableServer(UserMistake):
    """The server cannot be tested as asked. One sentence for a person, with the way out."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One small request as the server takes it, and how many tokens its prompt had, where the server said so."""

    request: ModelRequest
    prompt_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def is_short(self) -> bool:
        """It was to be of full length, and was not."""
        full = self.request.sampling.to_full_length
        return full and self.output_tokens is not None and self.output_tokens < self.request.max_tokens


def label_of(given: str | None, engine: Mapping[str, Any] | None, url: str) -> str:
    """What reports call a server: as was said, by the engine that it names, or by its address."""
    return given or str((engine or {}).get("name") or "") or urlsplit(url).netloc


class Target:
    """Asks one server. `with Target(url, access) as target: …`"""

    def __init__(self, url: str, access: Access) -> None:
        self.url = origin_of(url)
        self._access = access
        self._sent = dict(access.headers)  # with those of the last signature
        self._http = httpx.Client(
            headers={**access.headers, "Accept-Encoding": "identity"},
            verify=self.url.startswith("https:") and not access.insecure,  # reading the certificates takes 40 ms
            timeout=TIMEOUT,
            trust_env=False,
        )

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def model(self, wanted: str | None, dialect: Dialect) -> str:
        """The model to ask for: `wanted`, else the first one listed. Raises `UnreachableServer`."""
        answer = self._ask("GET", "/v1/models")
        if wanted is not None:
            return wanted
        self._refuse_redirect(answer)
        if answer.is_success and answer.text.lstrip()[:1] == "<":
            raise UnreachableServer(
                f"{self.url}/v1/models is a web page: is there an OpenAI-compatible server at this address? If its API "
                "lists no models, name one with --model."
            )
        listed = _json(answer).get("data") if answer.is_success else None
        if answer.status_code in {401, 403}:
            raise self._no_entry(dialect)
        if answer.status_code == 503:
            raise UnreachableServer(f"{self.url} is not ready yet (503): try again when its model is loaded.")
        if not isinstance(listed, list) or not listed or not isinstance(listed[0], dict) or not listed[0].get("id"):
            raise UnreachableServer(
                f"{self.url}/v1/models lists no model (HTTP {answer.status_code}): if an OpenAI-compatible server is "
                "at this address, name its model with --model."
            )
        model = str(listed[0]["id"])
        if len(listed) > 1:
            logger.info("%s lists %d models; %s is tested. --model names another.", self.url, len(listed), model)
        return model

    def owner(self, model: str) -> str:
        """Who owns the model by the server's own list; servers put their own name there. Empty where none is said."""
        listed = self._optional("GET", "/v1/models").get("data")
        models = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
        owners = [one.get("owned_by") for one in models if one.get("id") == model]
        return str(next(iter(owners), None) or "")

    def engine(self) -> dict[str, Any] | None:
        """What `/v1/engine` says, without what is not of its type; `None` where there is no such page."""
        told = self._optional("GET", "/v1/engine")
        facts = as_typed(told, ENGINE)
        for name in told.keys() - facts.keys():
            logger.warning("%s/v1/engine has `%s` of another type than expected: it is left out.", self.url, name)
        return facts or None

    def tokenized(self, body: dict[str, Any]) -> dict[str, Any]:
        """What `/tokenize` answers to `prompt` or `messages`, as vLLM has it; empty where there is no such page."""
        return self._optional("POST", "/tokenize", body)

    def quality(self, model: str, dtype: str | None) -> Quality:
        """The log-probabilities of a fixed text, as vLLM has them: `echo` with `logprobs` on `/v1/completions`."""
        if model.startswith(RANDOM):
            return Quality(dtype=dtype, why=NO_WEIGHTS)
        body = {"model": model, "prompt": TEXT, "echo": True, "logprobs": TOP, "max_tokens": 1, "temperature": 0}
        try:
            answer = self._http.post(f"{self.url}/v1/completions", json=body, timeout=QUALITY_TIMEOUT)
            if not answer.is_success:
                return Quality(dtype=dtype, why=self._said(message_of(answer.content)).rstrip("."))
            found = _json(answer)["choices"][0]["logprobs"]
            tokens, values, tops = (tuple(found[name][1:-1]) for name in ("tokens", "token_logprobs", "top_logprobs"))
            return msgspec.convert(Quality(tokens, values, tops, dtype), Quality, from_attributes=True)
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError):
            return Quality(dtype=dtype, why="the server gives no log-probabilities of a prompt's tokens")

    def try_out(self, request: ModelRequest, dialect: Dialect) -> Trial:
        """Send one request before the run, as the run sends it, and change it where the server says what it does not
        take: a sampling option, `stream_options`, or `max_tokens` where it requires `max_completion_tokens`.

        A server whose streams have no `usage` is asked once more for a whole answer, for the tokens of the prompt.
        Raises `UnreachableServer` when the server does not let this client in or has no such API; other failures are
        left to the run, which counts them.
        """
        while True:
            sent = self._send(request, dialect)
            if sent is None:
                return Trial(request)
            response, answer = sent
            if response.status_code in {401, 403}:
                raise self._no_entry(dialect)
            self._refuse_redirect(response)
            if response.is_success:
                if request.streamed and answer.prompt_tokens is None:
                    whole = self._send(replace(request, streamed=False), dialect)
                    answer = answer if whole is None else whole[1]
                return Trial(request, answer.prompt_tokens, answer.output_tokens)
            reason = self._said(message_of(response.content))
            if response.status_code == 404:
                raise UnreachableServer(
                    f"{self.url}{dialect.path(request)} answers 404 ({reason}): choose another --endpoint or --model."
                )
            changed = _without_what_is_refused(request, response.status_code, reason)
            if changed is None:
                return Trial(request)
            request = changed

    def _send(self, request: ModelRequest, dialect: Dialect) -> tuple[httpx.Response, Answer] | None:
        """The response, and what a successful one has answered; `None` where the server does not answer."""
        path, body = dialect.path(request), dialect.written(request)
        headers = {"Content-Type": "application/json"}
        url = httpx.URL(self.url)
        if self._access.signer is not None:
            signed = self._access.signer(url.netloc.decode(), url.path.rstrip("/") + path, body)
            self._sent |= signed
            headers |= signed
        answer = dialect.answer()
        try:
            with self._http.stream("POST", self.url + path, content=body, headers=headers) as response:
                if response.is_success:
                    _read(response, answer, request.streamed)
                else:
                    response.read()
        except httpx.HTTPError:
            return None
        return response, answer

    def _refuse_redirect(self, answer: httpx.Response) -> None:
        """A request that is measured is never sent twice, so no redirect is followed. Raises `UnreachableServer`."""
        if answer.has_redirect_location:
            where = self._said(answer.headers["Location"])
            raise UnreachableServer(f"{answer.request.url} redirects to {where}: give the address that it leads to.")

    def _said(self, text: str) -> str:
        """Without the keys that were sent: a server may quote them."""
        return redacted(text, self._sent)

    def _no_entry(self, dialect: Dialect) -> UnreachableServer:
        if self._access.withheld is not None:
            return UnreachableServer(
                f"{self.url} requires an API key, and {self._access.withheld} is not sent over plain http to another "
                f"machine: use https, set {KEY_VARIABLE}, or give --insecure-key."
            )
        return UnreachableServer(f"{self.url} requires a valid API key: set {dialect.key_variable} or {KEY_VARIABLE}.")

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
            reason = self._said(ERRNO.sub("", str(error))) or type(error).__name__
            plain = self.url.replace("https:", "http:", 1)
            if PLAIN_ANSWER.search(reason) or ("EOF occurred" in reason and _answers(plain)):
                raise UnreachableServer(f"{self.url} speaks plain http, not https: give {plain}.") from error
            raise UnreachableServer(
                f"cannot reach {self.url} ({reason}): start a server there (`enginebench serve`) or give another URL."
            ) from error
        except (httpx.InvalidURL, ValueError) as error:
            raise UnreachableServer(
                f"`{self.url}` is not the address of a server ({error}): give one such as http://127.0.0.1:8000."
            ) from error


def _read(response: httpx.Response, answer: Answer, streamed: bool) -> None:
    """A stream is read up to its last event: some servers keep the connection open after it."""
    if not streamed or response.headers.get("Content-Type", "").startswith("application/json"):
        answer.whole(response.read(), (None, monotonic_ns()))
        return
    for piece in response.iter_bytes():
        answer.feed(piece, (None, monotonic_ns()))
        if answer.done is not None or answer.error is not None:
            return
    answer.close((None, monotonic_ns()))


def _without_what_is_refused(request: ModelRequest, status: int, reason: str) -> ModelRequest | None:
    """The request changed as the server requires; `None` where it names no field."""
    if status not in {400, 422}:  # Pydantic's servers say 422
        return None
    if "max_completion_tokens" in reason and request.max_tokens_field == "max_tokens":
        logger.info("The model accepts max_completion_tokens instead of max_tokens.")
        return replace(request, max_tokens_field="max_completion_tokens")
    if "stream_options" in reason and request.stream_usage:
        logger.warning("The server accepts no stream_options (%s): its streams are asked for without usage.", reason)
        return replace(request, stream_usage=False)
    for name in request.sampling.options:
        if name in reason:
            logger.warning("The model accepts no %s (%s): its own default applies.", name, reason)
            return replace(request, sampling=request.sampling.without(name))
    return None


def _answers(url: str) -> bool:
    """Whether an HTTP server is there; asked without a key, which others could read on its way."""
    try:
        return (
            httpx.get(url, timeout=OPTIONAL_TIMEOUT, trust_env=False).status_code != 400
        )  # a TLS server's to plain http
    except httpx.HTTPError:
        return False


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = plain_json(answer.json())
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
