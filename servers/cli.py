"""The command of this room: `serve`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from engines.contract.base import Model
    from engines.process.child import Watch
    from servers.settings import Settings

app = typer.Typer()


class LogLevel(StrEnum):
    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


@app.command()
def serve(
    engine: Annotated[str, typer.Option(help="Which engine; `enginebench engines` lists them.", show_default=False)],
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="NAME=VALUE", help="A setting of the engine; may be repeated."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A preset, a folder, a .gguf file or a Hugging Face id.  [default: smollm2-135m]"),
    ] = None,
    served_model: Annotated[str | None, typer.Option(help="The name by which clients ask for the model.")] = None,
    trust_remote_code: Annotated[bool, typer.Option(help="Run code that comes with the model.")] = False,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 is every one.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any free port, and prints it.")] = 8000,
    queue_size: Annotated[int, typer.Option(min=0, help="Requests that may wait for the engine.")] = 1024,
    request_timeout: Annotated[float, typer.Option(min=0.001, help="Seconds a whole answer may take.")] = 600.0,
    drain_timeout: Annotated[float, typer.Option(min=0, help="Seconds running requests get at the end.")] = 30.0,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens an answer may have.")] = None,
    max_body_bytes: Annotated[int, typer.Option(min=1, help="Largest body that is taken.")] = 4 * 1024 * 1024,
    warmup_tokens: Annotated[int, typer.Option(min=0, help="Tokens asked of the engine before it is ready.")] = 8,
    hung_after: Annotated[
        float, typer.Option(min=1, help="Seconds of silence after which the engine's process is started again.")
    ] = 60.0,
    load_timeout: Annotated[float, typer.Option(min=1, help="Seconds the engine gets to load its model.")] = 1800.0,
    api_key_file: Annotated[
        Path | None, typer.Option(help="Keys that clients must show, one a line; or set ENGINEBENCH_API_KEY.")
    ] = None,
    log_level: Annotated[LogLevel, typer.Option(help="`info` shows what the engine says.")] = LogLevel.warning,
) -> None:
    """Serve one engine behind an OpenAI-compatible HTTP server.

    Examples:

      enginebench serve --engine fake -o ttft=0.3 -o tpot=0.02

      enginebench serve --engine transformers --model smollm2-135m --port 0
    """
    from engines.contract.base import EngineUnavailable
    from engines.process.child import Watch
    from servers.settings import Settings, read_api_keys

    try:
        settings = Settings(
            host=host,
            port=port,
            served_model=served_model,
            queue_size=queue_size,
            request_timeout=request_timeout,
            drain_timeout=drain_timeout,
            max_output_tokens=max_output_tokens,
            max_body_bytes=max_body_bytes,
            warmup_tokens=warmup_tokens,
            api_keys=read_api_keys(api_key_file),
        )
        watch = Watch(hung_after=hung_after, load_timeout=load_timeout)
        failure = _serve(engine, _options(option or []), model, trust_remote_code, watch, settings, log_level)
    except (ValueError, EngineUnavailable) as error:
        _fail(str(error))
    if failure is not None:
        _fail(f"{engine} could not be loaded: {failure}")


def _serve(
    engine: str,
    options: dict[str, str],
    model: str | None,
    trust_remote_code: bool,
    watch: Watch,
    settings: Settings,
    log_level: LogLevel,
) -> str | None:
    """Find out what is wrong as early as can be, then serve. Returns why the engine could not be loaded."""
    from engines.contract.registry import engine_class, load_engine, spec
    from servers.http.address import listen
    from settings_schema import from_text

    needs_model = spec(engine).needs_model
    from_text(engine_class(engine).Options, options)  # a typing error is told before a model is fetched
    listener = listen(settings)
    prepared = _prepare(model, trust_remote_code) if needs_model or model is not None else None
    loaded = load_engine(engine, prepared, options, watch)

    # Web framework and tokenizer: not needed to tell somebody of a mistake.
    from servers.app import create_app
    from servers.openai.prompt import load_tokenizer
    from servers.serve import configure_logging, run

    configure_logging(log_level.value)
    return run(create_app(loaded, load_tokenizer(prepared), settings), listener, settings)


def _options(given: list[str]) -> dict[str, str]:
    """`["ttft=0.3"]` as a dictionary. Raises `ValueError`."""
    options = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ValueError(f"`-o {text}` is not of the form name=value.")
        options[name.strip()] = value
    return options


def _prepare(spec: str | None, trust_remote_code: bool) -> Model:
    from engines.models.fetch import DEFAULT, fetch_model
    from engines.models.progress import terminal_progress

    with terminal_progress() as progress:
        return fetch_model(spec or DEFAULT, trust_remote_code=trust_remote_code, progress=progress)


def _fail(sentence: str) -> NoReturn:
    """A user's mistake: one sentence, exit code 2."""
    print(sentence, file=sys.stderr)
    raise typer.Exit(2)
