"""Convert messages or text to token ids and back, with the model's own tokenizer and chat template.

The server renders and tokenises each prompt once, so that every engine receives the same tokens. It needs neither torch
nor transformers; templates run in jinja2's immutable sandbox with the same functions as in transformers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from servers.http.api_errors import bad_request
from servers.openai.decoding import too_long

if TYPE_CHECKING:
    import jinja2

Messages = Sequence[Mapping[str, Any]]
LIKELY_CHARACTERS = 4  # per token; a text with more of them than its limit allows is counted first
PIECE = 32 * 1024  # characters that are counted at a time
MARGIN = 1.1  # cutting a text into pieces may add tokens


class Tokenizer(Protocol):
    vocab_size: int

    def encode(self, text: str, special: bool, limit: int) -> list[int]:
        """Return token ids of `text`; `special` adds the model's special tokens, such as a beginning-of-text token.

        Raises `ApiError` for a text of clearly more than `limit` tokens, before all of it is tokenised.
        """

    def decode(self, ids: Sequence[int]) -> str: ...

    def render(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        """Return a chat as one prompt. Raises `ApiError` if there is no chat template, or it rejects these messages."""


def load_tokenizer(model: Model | None) -> Tokenizer:
    """Return the model's own tokenizer; one token per byte if there is no model, or only a configuration.

    Raises `EngineUnavailable` if a real model comes without a tokenizer that can be read.
    """
    if model is None or (model.random_weights and not (model.folder / "tokenizer.json").is_file()):
        return ByteTokenizer()
    return ModelTokenizer(model.folder)


class ByteTokenizer:
    """Make a token of each byte of UTF-8: needs no files, is reversible, and fits into any vocabulary."""

    vocab_size = 256

    def encode(self, text: str, special: bool, limit: int) -> list[int]:
        content = text.encode("utf-8", "replace")
        if len(content) > 2 * limit:
            raise too_long(limit, "prompt")
        return list(content)

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def render(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        lines = [f"{message['role']}: {message['content']}\n" for message in messages]
        return "".join(lines) + ("assistant:" if add_generation_prompt else "")


class ModelTokenizer:
    """`tokenizer.json` and the chat template in a model's folder. Safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        import tokenizers

        path = folder / "tokenizer.json"
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises a plain Exception for everything
            raise EngineUnavailable(
                f"cannot read the tokenizer of the model in {folder} ({error}); it needs a valid tokenizer.json."
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.vocab_size = self._tokenizer.get_vocab_size()
        config = _read_json(folder / "tokenizer_config.json")
        self._special_tokens = _special_tokens(config, _read_json(folder / "special_tokens_map.json"))
        source = _template_source(folder, config)
        self._template = None if source is None else _compile(source)

    def encode(self, text: str, special: bool, limit: int) -> list[int]:
        if len(text) > LIKELY_CHARACTERS * limit:
            self._refuse_if_too_long(text, limit)
        # `encode_batch` releases the interpreter lock; `encode` does not.
        (encoding,) = self._tokenizer.encode_batch([text], add_special_tokens=special)
        return encoding.ids

    def _refuse_if_too_long(self, text: str, limit: int) -> None:
        """Count the tokens piece by piece, until they exceed the limit by more than cuts between pieces can explain."""
        tokens = 0
        for start in range(0, len(text), PIECE):
            (encoding,) = self._tokenizer.encode_batch([text[start : start + PIECE]], add_special_tokens=False)
            tokens += len(encoding)
            if tokens > MARGIN * limit:
                raise too_long(limit, "prompt")

    def decode(self, ids: Sequence[int]) -> str:
        (text,) = self._tokenizer.decode_batch([ids], skip_special_tokens=False)
        return text

    def render(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        import jinja2

        if self._template is None:
            raise bad_request("This model has no chat template; use /v1/completions.", "messages")
        try:
            return self._template.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._special_tokens,
            )
        except jinja2.TemplateError as error:  # from raise_exception in the template, or from the sandbox
            raise bad_request(f"The model's chat template rejects these messages: {error}.", "messages") from error
        except Exception as error:  # a template is a program; it may raise anything
            kind = type(error).__name__
            raise bad_request(f"The model's chat template fails on these messages ({kind}).", "messages") from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _special_tokens(*configs: Mapping[str, Any]) -> dict[str, str]:
    """Read `bos_token`, `eos_token` and so on, which are text or objects with `content`."""
    tokens: dict[str, str] = {}
    for config in configs:
        for name, value in config.items():
            if name.endswith("_token") and isinstance(value, dict):
                value = value.get("content")
            if name.endswith("_token") and isinstance(value, str):
                tokens.setdefault(name, value)
    return tokens


def _template_source(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return the chat template: its own file in newer models; text, or a list of named ones, in older ones."""
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        template = {entry.get("name"): entry.get("template") for entry in template}.get("default")
    return template if isinstance(template, str) else None


def _compile(source: str) -> jinja2.Template:
    """Return the environment that chat templates are written for (transformers' `apply_chat_template`).

    Raises `EngineUnavailable` if the template is not valid Jinja.
    """
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %} … {% endgeneration %}` marks text for training; its content is rendered as it is."""

        tags = {"generation"}  # noqa: RUF012  # jinja2 declares it so

        def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def strftime_now(format: str) -> str:
        return datetime.now().strftime(format)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    functions: dict[str, Callable[..., Any]] = {"raise_exception": raise_exception, "strftime_now": strftime_now}
    environment.globals.update(functions)
    try:
        return environment.from_string(source)
    except jinja2.TemplateError as error:
        raise EngineUnavailable(f"the model's chat template is not valid: {error}.") from error
