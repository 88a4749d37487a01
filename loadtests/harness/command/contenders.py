"""The contenders of a run: engines that are served for it, and running servers, each with its own name.

    --engine few=vllm -o few.concurrency=16 --engine many=vllm -o many.concurrency=64
    --url old=http://old:8000 --url new=http://new:8000 --model old=llama --header 'new.X-Tenant: a'

`NAME=` before a value, or `NAME.` before the name of an option or of a header, selects one contender; without it, the
value is for all. A contender without a name is named after its engine or its address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from enginebench.settings.schema import PREFIX, UserMistake, options_by_engine, settings_of
from loadtests.harness.client.authentication import KEY_VARIABLE
from loadtests.harness.client.headers import parse_headers
from loadtests.harness.client.server_address import Address, with_scheme
from loadtests.harness.settings.run_settings import RunSettings

MODEL_VARIABLE, HEADER_VARIABLE = (
    next(setting.variable for setting in settings_of(RunSettings) if setting.name == name)
    for name in ("model", "header")
)
NAME = r"([\w+-]+)"  # never the beginning of an address or of a header, where a colon follows


@dataclass(frozen=True, slots=True)
class Contender:
    """An engine to serve, or the address of a running server. `options` are the engine's, each `name=value`.

    `name` is the label in reports; empty for a single server, whose label is the engine that it names. The command
    `restart` starts the server at `url` before each run, and the files at the paths `uncached` are dropped from the
    file cache before that.
    """

    name: str
    engine: str = ""
    url: str = ""
    model: str | None = None
    options: tuple[str, ...] = ()
    headers: str = field(default="", repr=False)  # one per line
    key: str | None = field(default=None, repr=False)
    restart: str = ""
    uncached: tuple[str, ...] = ()

    @property
    def secrets(self) -> dict[str, str]:
        """Return variables for Locust's process: other users of this machine could read a command line."""
        variables = {KEY_VARIABLE: self.key, HEADER_VARIABLE: self.headers}
        return {name: text for name, text in variables.items() if text}


def contenders(
    engines: Sequence[str],
    urls: Sequence[str],
    options: Sequence[str] = (),
    models: Sequence[str] = (),
    headers: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
    restarts: Sequence[str] = (),
    uncached: Sequence[str] = (),
) -> list[Contender]:
    """Return the engines, then the servers, with one contender for each model. Raises `UserMistake`."""
    if not engines and not urls:
        raise UserMistake("choose what to test: the URL of a running server, or --engine NAME to serve an engine.")
    if restarts and not urls:
        raise UserMistake("--restart starts the server at a URL: give the URL that it will have.")
    if options and not engines:
        raise UserMistake("-o sets an option of an engine that --engine serves, not of a running server.")
    alone = len(engines) + len(urls) == 1
    named = [_engine(text) for text in engines] + [_server(text, alone) for text in urls]
    names = [contender.name for contender in named]
    for contender in named:
        if names.count(contender.name) > 1:
            example = f"--engine first={contender.engine}" if contender.engine else f"--url first={contender.url}"
            raise UserMistake(f"there are several `{contender.name}`: give each its own name, such as {example}.")
    own_options = options_by_engine(options, [contender.name for contender in named if contender.engine])
    models = models or list(filter(None, [environment.get(MODEL_VARIABLE)]))
    own_models = _split("--model", models, "=", names)
    own_headers = _split("--header", headers, ".", names)
    own_restarts = _split("--restart", restarts, "=", [contender.name for contender in named if contender.url])
    own_paths = _split("--drop-cache", uncached, "=", names)
    complete = []
    for contender in named:
        name = contender.name
        headers_here = "\n".join([*own_headers[""], *own_headers.get(name, [])])
        parse_headers(headers_here)
        contender = replace(
            contender,
            options=tuple(f"{option}={value}" for option, value in own_options.get(name, {}).items()),
            headers=headers_here,
            restart=(own_restarts.get(name) or own_restarts[""] or [""])[-1] if contender.url else "",
            uncached=(*own_paths[""], *own_paths.get(name, [])),
            key=environment.get(key_variable(name)) if contender.url else None,  # our server takes the common key
        )
        complete += _with_models(contender, own_models.get(name) or own_models[""])
    return complete


def key_variable(name: str) -> str:
    """Return the variable with a contender's API key, such as ENGINEBENCH_OLD_API_KEY for `old`."""
    return KEY_VARIABLE.replace(PREFIX, f"{PREFIX}{re.sub(r'[^A-Z0-9]', '_', name.upper())}_" if name else PREFIX)


def _engine(text: str) -> Contender:
    name, engine = _named(text)
    return Contender(name or engine, engine=engine)


def _server(text: str, alone: bool) -> Contender:
    name, url = _named(text)
    url = with_scheme(url)
    Address.parse(url)
    return Contender(name or ("" if alone else url.partition("://")[2].rstrip("/")), url=url)


def _named(text: str) -> tuple[str, str]:
    """Split into a name, which may be empty, and the rest."""
    if match := re.fullmatch(f"{NAME}=(.+)", text):
        return match[1], match[2]
    name, equals, _ = text.partition("=")
    if equals and not re.search("[/:?]", name):  # otherwise it is part of an address
        raise UserMistake(f"`{name}` cannot be the name of a contender: letters, digits, _, + and - only.")
    return "", text


def _split(flag: str, values: Sequence[str], separator: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Group values by contender; values for all contenders are under "". Raises `UserMistake`."""
    by_name: dict[str, list[str]] = {"": []}
    for text in values:
        match = re.fullmatch(f"{NAME}{re.escape(separator)}(.+)", text.strip())
        if match is not None and match[1] not in names:
            choices = ", ".join(filter(None, names)) or "one without a name"
            raise UserMistake(
                f"{flag} {match[1]}{separator}… is for `{match[1]}`, which is not among the contenders: {choices}."
            )
        by_name.setdefault(match[1] if match else "", []).append(match[2] if match else text)
    return by_name


def _with_models(contender: Contender, models: Sequence[str]) -> list[Contender]:
    """Return a contender for each model; if there are several, the model is part of the name."""
    if len(set(models)) < len(models):
        raise UserMistake(f"each --model may be given only once, not as in {', '.join(models)}.")
    if len(models) < 2:
        return [replace(contender, model=next(iter(models), None))]
    return [replace(contender, model=model, name=f"{contender.name} {model}".strip()) for model in models]
