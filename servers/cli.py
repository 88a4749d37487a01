"""The command `serve`."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import Annotated, Any, NoReturn

import typer

from enginebench.settings.flags import MODEL_HELP, EngineSettings, TrustRemoteCode, read_settings, with_flags
from enginebench.settings.schema import ENGINE_PREFIX, UserMistake, options_by_engine
from engines.process.supervisor import Watch
from servers.settings import ServerSettings, server_settings

app = typer.Typer()


@app.command()
@with_flags(ServerSettings, Watch)
def serve(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="Engine to serve; `enginebench engines` lists them.")],
    option: EngineSettings = None,
    model: Annotated[str | None, typer.Option(metavar="MODEL", help=MODEL_HELP)] = None,
    trust_remote_code: TrustRemoteCode = False,
    own_server: Annotated[
        bool,
        typer.Option(
            "--own-server",
            help="Start the engine's own server instead, with the same model, format and limits; of the settings below "
            "`Options`, only --host and --port apply to it.",
        ),
    ] = False,
    **flags: Any,
) -> None:
    """Serve one engine behind an OpenAI-compatible HTTP server.

    The settings below `Options` can also be set by environment variables: ENGINEBENCH_PORT sets --port.

    Examples:

      enginebench serve fake -o ttft=0.3 -o tpot=0.02

      enginebench serve transformers --model smollm2-135m --port 0
    """
    settings = server_settings(flags)
    if own_server:
        _serve_its_own(engine, options_by_engine(option or [], [engine])[engine], model, trust_remote_code, settings)
    watch = read_settings(Watch, flags)
    failure = _serve(
        engine, options_by_engine(option or [], [engine])[engine], model, trust_remote_code, watch, settings
    )
    if failure is not None:
        raise UserMistake(f"{engine} could not be loaded: {failure}")


def _serve_its_own(
    engine: str, options: dict[str, str], model: str | None, trust_remote_code: bool, settings: ServerSettings
) -> NoReturn:
    """Replace this process with the engine's own server."""
    from engines.models.fetch import fetch_and_show
    from engines.process.engine_loading import check_before_download, own_server, refuse_missing
    from engines.process.launching import environment_of
    from servers.http.address import listen

    check_before_download(engine, options, model)
    refuse_missing(engine, options)
    listener = listen(settings)
    host, port = listener.getsockname()[:2]
    launch = own_server(engine, fetch_and_show(model, trust_remote_code), options, host, port)
    assert launch.command is not None
    listener.close()  # frees the port for that server
    os.execve(shutil.which(launch.command[0]) or launch.command[0], launch.command, environment_of(launch, ""))


def _serve(
    engine: str,
    options: dict[str, str],
    model: str | None,
    trust_remote_code: bool,
    watch: Watch,
    settings: ServerSettings,
) -> str | None:
    """Check the arguments, cheapest first, then serve. Return why the engine could not be loaded."""
    from engines.contract.registry import spec
    from engines.models.fetch import fetch_and_show
    from engines.process.engine_loading import check_before_download, refuse_missing
    from engines.process.replicas import load_replicas
    from servers.http.address import listen

    needs_model = spec(engine).needs_model
    check_before_download(engine, options, model)
    refuse_missing(engine, options)
    listener = listen(settings)
    prepared = fetch_and_show(model, trust_remote_code) if needs_model or model is not None else None
    prefix = tuple(shlex.split(os.environ.get(ENGINE_PREFIX, "")))  # set by `enginebench run --profile`
    loaded = load_replicas(engine, prepared, options, watch, prefix)

    # The web framework and the tokenizer take time to import, and no message above needs them.
    from servers.app import create_app
    from servers.openai.prompts import load_tokenizer
    from servers.serve import configure_logging, run

    configure_logging(settings.log_level)
    return run(create_app(loaded, load_tokenizer(prepared), settings), listener)
