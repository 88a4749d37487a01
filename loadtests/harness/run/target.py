"""The server under test before the run: its models, its engine, and its token counts.

A server needs only `/v1/models`, or not even that if the user names a model. `/v1/engine` and `/tokenize` are used if
they exist and give a valid answer in time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import monotonic_ns
from typing import Any
from urllib.parse import urlsplit

import msgspec

from enginebench.records.quality import NO_WEIGHTS, TEXT, TOP, Quality
from enginebench.records.run import ENGINE, as_typed
from enginebench.settings.schema import UserMistake
from loadtests.harness.client.authentication import KEY_VARIABLE, Access
from loadtests.harness.client.dialects.dialect import Dialect, ModelRequest
from loadtests.harness.client.model_answer import Answer, message_of
from loadtests.harness.client.questions import NoAnswer, NoConnection, NotTrusted, Questions, Reply, json_object
from loadtests.harness.client.redaction import redacted
from loadtests.harness.client.server_address import Address

logger = logging.getLogger(__name__)

PLAIN_ANSWER = re.compile(r"WRONG_VERSION_NUMBER|UNKNOWN_PROTOCOL|RECORD_LAYER_FAILURE|record layer failure")
RANDOM = "random:"  # prefix of a model without trained weights on our servers
QUALITY_TIMEOUT = 300.0  # seconds: an engine without batching reads the text token by token
JSON = {"Content-Type": "application/json"}
WITHOUT = "%s: %s; the run goes on without it."
MAX_ENGINE_BYTES = 2**16  # size of the facts of `/v1/engine`, which meta.json keeps
NO_SUCH_PAGE = (404, 405)


class UnreachableServer(UserMistake):
    """The server cannot be tested as asked. The text is a sentence that names the remedy."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A small request in the form that the server accepts, and its tokens, if the server counted them."""

    request: ModelRequest
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    uncounted: bool = False  # its answer had content, but no valid number of tokens

    @property
    def is_short(self) -> bool:
        """Return whether the answer is shorter than asked."""
        full = self.request.sampling.to_full_length
        return full and self.output_tokens is not None and self.output_tokens < self.request.max_tokens


def label_of(label: str | None, engine: Mapping[str, Any] | None, url: str) -> str:
    """Return a server's name in reports: its `label`, the engine that it names, or its address."""
    return label or str((engine or {}).get("name") or "") or urlsplit(url).netloc


class Target:
    """Ask one server: `with Target(url, access) as target: …`"""

    def __init__(self, url: str, access: Access) -> None:
        self._address = Address.parse(url)
        self.url = self._address.origin + self._address.root
        self._access = access
        self._sent = dict(access.headers)  # including the headers of the last signature
        self._questions = Questions(self._address, access)
        self._silent: set[str] = set()  # pages that gave no answer

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self._questions.close()

    def model(self, named: str | None, dialect: Dialect) -> str:
        """Return the `named` model, else the first one of the server's list. Raises `UnreachableServer`."""
        if named is not None:
            return named
        target = self._address.target("/v1/models")
        page = self._address.origin + target
        instead = "if an OpenAI-compatible server is at this address, name its model with --model."
        try:
            with self._questions.ask("GET", target) as reply:
                self._refuse_redirect(page, reply)
                content = reply.read()
        except NoConnection as error:
            raise self._unreachable(error) from error
        except NoAnswer as error:
            raise UnreachableServer(f"{page} gave no answer ({self._redacted(str(error))}): {instead}") from error
        if reply.is_success and content.lstrip()[:1] == b"<":
            raise UnreachableServer(
                f"{page} is a web page: is there an OpenAI-compatible server at this address? If its API lists no "
                "models, name one with --model."
            )
        if reply.status in {401, 403}:
            raise self._no_entry(dialect)
        if reply.status == 503:
            raise UnreachableServer(f"{self.url} is not ready yet (503): try again when its model is loaded.")
        listed = json_object(content).get("data") if reply.is_success else None
        if not isinstance(listed, list) or not listed or not isinstance(listed[0], dict) or not listed[0].get("id"):
            raise UnreachableServer(f"{page} lists no model (HTTP {reply.status}): {instead}")
        model = str(listed[0]["id"])
        if len(listed) > 1:
            logger.info("%s lists %d models; %s is tested. --model names another.", self.url, len(listed), model)
        return model

    def owner(self, model: str) -> str:
        """Return the model's owner in the server's list, where servers put their own name; empty without one."""
        listed = self._optional("GET", "/v1/models").get("data")
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, dict) and entry.get("id") == model:
                return str(entry.get("owned_by") or "")
        return ""

    def engine(self) -> dict[str, Any] | None:
        """Return the facts of `/v1/engine` that have the right type; `None` if the page is missing or huge."""
        document = self._optional("GET", "/v1/engine")
        facts = as_typed(document, ENGINE)
        for name in document.keys() - facts.keys():
            logger.warning("%s/v1/engine has `%s` of an unexpected type: it is left out.", self.url, name)
        return facts if facts and len(msgspec.json.encode(facts)) <= MAX_ENGINE_BYTES else None

    def tokenized(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of `/tokenize` to a `prompt` or `messages`, in vLLM's form; empty without the page."""
        return self._optional("POST", "/tokenize", body)

    def quality(self, model: str, dtype: str | None) -> Quality:
        """Return the log-probabilities of a fixed text: `echo` with `logprobs` on `/v1/completions`, in vLLM's form."""
        if model.startswith(RANDOM):
            return Quality(dtype=dtype, why=NO_WEIGHTS)
        body = {"model": model, "prompt": TEXT, "echo": True, "logprobs": TOP, "max_tokens": 1, "temperature": 0}
        target, sent = self._address.target("/v1/completions"), msgspec.json.encode(body)
        try:
            with self._questions.ask("POST", target, sent, JSON, QUALITY_TIMEOUT) as reply:
                content = reply.read()
            if not reply.is_success:
                return Quality(dtype=dtype, why=self._redacted(message_of(content)).rstrip("."))
            logprobs = json_object(content)["choices"][0]["logprobs"]
            names = ("tokens", "token_logprobs", "top_logprobs")
            tokens, values, tops = (tuple(logprobs[name][1:-1]) for name in names)
            return msgspec.convert(Quality(tokens, values, tops, dtype), Quality, from_attributes=True)
        except (NoAnswer, ValueError, KeyError, IndexError, TypeError):
            return Quality(dtype=dtype, why="the server gives no log-probabilities of a prompt's tokens")

    def try_out(self, request: ModelRequest, dialect: Dialect) -> Trial:
        """Send one request before the run, and change it if the server names something that it does not accept: a
        sampling option, `stream_options`, or `max_tokens` in place of `max_completion_tokens`.

        If the stream has no `usage`, the request is sent again without streaming, for the tokens of the prompt. Raises
        `UnreachableServer` if the server denies access or does not have the API; the run counts other failures.
        """
        while True:
            sent = self._send(request, dialect)
            if sent is None:
                return Trial(request)
            reply, answer, content = sent
            if reply.status in {401, 403}:
                raise self._no_entry(dialect)
            if reply.is_success:
                uncounted = bool(answer.text) and answer.output_tokens is None
                if request.streamed and answer.prompt_tokens is None:
                    whole = self._send(replace(request, streamed=False), dialect)
                    answer = answer if whole is None else whole[1]
                return Trial(request, answer.prompt_tokens, answer.output_tokens, uncounted)
            reason = self._redacted(message_of(content))
            if reply.status in NO_SUCH_PAGE:
                full = "" if self._address.full else ", or give the endpoint's full address"
                asked = self._address.origin + self._address.target_of_model(dialect.path(request))
                raise UnreachableServer(
                    f"{asked} answers {reply.status} ({reason}): choose another --endpoint or --model{full}."
                )
            changed = _without_what_is_refused(request, reply.status, reason)
            if changed is None:
                return Trial(request)
            request = changed

    def _send(self, request: ModelRequest, dialect: Dialect) -> tuple[Reply, Answer, bytes] | None:
        """Return the reply, its answer if it is a success, and its body if not; `None` without a reply."""
        target, body = self._address.target_of_model(dialect.path(request)), dialect.written(request)
        headers, place = dict(JSON), self._address.origin + target
        if self._access.signer is not None:
            signed = self._access.signer(self._address.authority, target, body)
            self._sent |= signed
            headers |= signed
        answer, content = dialect.answer(), b""
        try:
            with self._questions.ask("POST", target, body, headers) as reply:
                self._refuse_redirect(place, reply)
                if reply.is_success:
                    _read(reply, answer, request.streamed)
                else:
                    content = reply.read()
        except NoConnection as error:
            raise self._unreachable(error) from error
        except NoAnswer as error:
            logger.info(WITHOUT, place, self._redacted(str(error)))
            return None
        return reply, answer, content

    def _refuse_redirect(self, place: str, reply: Reply) -> None:
        """Raise `UnreachableServer` for a redirect: a measured request is never sent twice."""
        if reply.location is not None:
            where = self._redacted(reply.location)
            raise UnreachableServer(f"{place} redirects to {where}: give the final address.")

    def _redacted(self, text: str) -> str:
        """Remove the keys that were sent, which a server may quote."""
        return redacted(text, self._sent)

    def _no_entry(self, dialect: Dialect) -> UnreachableServer:
        if self._access.withheld is not None:
            return UnreachableServer(
                f"{self.url} requires an API key, and {self._access.withheld} is not sent over plain http to another "
                f"machine: use https, or set {KEY_VARIABLE}."
            )
        return UnreachableServer(f"{self.url} requires a valid API key: set {dialect.key_variable} or {KEY_VARIABLE}.")

    def _optional(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Return the JSON object that the server sends; empty for any other answer, a late one, or none. Raises
        `UnreachableServer` if the server cannot be reached."""
        if path in self._silent:
            return {}
        target = self._address.target(path)
        try:
            return self._questions.json(method, target, body)
        except NoConnection as error:
            raise self._unreachable(error) from error
        except NoAnswer as error:
            self._silent.add(path)
            logger.info(WITHOUT, self._address.origin + target, self._redacted(str(error)))
            return {}

    def _unreachable(self, error: NoConnection) -> UnreachableServer:
        reason, plain = self._redacted(str(error)), f"http://{self._address.authority}"
        if isinstance(error, NotTrusted):
            return UnreachableServer(f"{reason}.")
        if PLAIN_ANSWER.search(reason) or ("EOF occurred" in reason and _answers(plain)):
            return UnreachableServer(f"{self.url} speaks plain http, not https: give {plain}{self._address.root}.")
        return UnreachableServer(
            f"cannot reach {self.url} ({reason}): start a server there (`enginebench serve`) or give another URL."
        )


def _read(reply: Reply, answer: Answer, streamed: bool) -> None:
    """Read an answer, but a stream only to its last event: some servers keep the connection open after it."""
    if not streamed or reply.headers.get("content-type", "").startswith("application/json"):
        answer.whole(reply.read(), (None, monotonic_ns()))
        return
    for piece in reply.pieces:
        answer.feed(piece, (None, monotonic_ns()))
        if answer.done is not None or answer.error is not None:
            return
    answer.close((None, monotonic_ns()))


def _without_what_is_refused(request: ModelRequest, status: int, reason: str) -> ModelRequest | None:
    """Change the request as the server requires; `None` if it names no field."""
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
    """Return whether an HTTP server answers; ask without a key, which plain HTTP would reveal."""
    try:
        with Questions(Address.parse(url), Access()).ask("GET", "/") as reply:
            return reply.status != 400  # a TLS server's answer to plain HTTP
    except NoAnswer:
        return False
