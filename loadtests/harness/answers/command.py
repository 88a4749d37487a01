"""`enginebench answers`: are answers under load those of the unloaded engine, and those of a reference?"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loadtests.harness.answers.questions import MOST
from settings.flags import AsJson, EngineSettings
from settings.schema import UserMistake

if TYPE_CHECKING:
    from rich.console import Console

    from loadtests.harness.answers.agreement import Answer
    from loadtests.harness.answers.check import Checked, Plan

WIDTH = 140  # of the table where the output is no terminal


def answers(
    engine: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Serve this engine; may be repeated. The first is the reference."),
    ] = None,
    url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="URL of an OpenAI-compatible server; may be repeated. The first is the reference."
        ),
    ] = None,
    option: EngineSettings = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model that the engines load, or to request from --url.")
    ] = None,
    prompts: Annotated[int, typer.Option(min=1, max=MOST, help="Number of prompts.")] = 16,
    output_tokens: Annotated[int, typer.Option(min=1, help="Maximum tokens of an answer.")] = 48,
    users: Annotated[int, typer.Option(min=1, help="Concurrent requests under load.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="How often each prompt is sent under load.")] = 2,
    at_least: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Exit with 1 if a smaller share is identical, under load or to the reference."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check greedy answers under load against unloaded ones, and engines against a reference.

    Every prompt is sent alone, and then again among many others; a deterministic engine gives equal answers. If servers
    send log-probabilities, they are compared over the tokens that agree. Perplexity is that of a built-in text.

    Exit code: 0 done, 1 fewer identical answers than --at-least, 2 a usage error or a server that failed.

    Examples:

      enginebench answers --engine transformers --engine candle --engine burn -o dtype=float32

      enginebench answers --url http://127.0.0.1:8000 --users 64 --at-least 1
    """
    from rich.console import Console

    from loadtests.harness.answers.check import Plan
    from loadtests.harness.answers.questions import questions
    from loadtests.harness.command.drive import sigterm_is_ctrl_c

    log = Console(stderr=True, highlight=False, markup=False)
    plan = Plan(questions(prompts), output_tokens, users, rounds)
    try:
        with sigterm_is_ctrl_c():
            servers = _servers(engine or [], url or [], option or [], model, log)
            results = _check_all(servers, model, plan, log)
    except KeyboardInterrupt:
        log.print("stopped")
        raise typer.Exit(2) from None
    _show(results, as_json)
    shares = [one.share for result in results for one in (result.under_load, result.with_reference) if one is not None]
    if at_least is not None and min(shares) < at_least:
        raise typer.Exit(1)


def _show(results: list[Checked], as_json: bool) -> None:
    from rich.console import Console

    from loadtests.harness.answers.table import sentences, table

    if as_json:
        sys.stdout.write(json.dumps([asdict(result) for result in results]) + "\n")
        return
    out = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDTH)
    out.print(table(results))
    for sentence in sentences(results):
        out.print(sentence, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Server:
    """An engine to be served, or the address of a running server."""

    label: str
    engine: str = ""
    options: tuple[str, ...] = ()
    url: str = ""


def _servers(engines: list[str], urls: list[str], options: list[str], model: str | None, log: Console) -> list[Server]:
    """Raises `UserMistake`."""
    from loadtests.harness.client.access import access_to
    from loadtests.harness.client.address import Address
    from loadtests.harness.command.drive import engine_options
    from loadtests.harness.command.formats import same_format

    if not engines and not urls:
        raise UserMistake("say what to test: --engine NAME to serve an engine, or --url URL of a running server.")
    if len({*engines, *urls}) < len(engines) + len(urls):
        raise UserMistake("give each --engine and each --url only once.")
    if len(engines) > 1 and (model or "").startswith("random:"):
        raise UserMistake(f"{model} has different weights in each engine: name a model with trained weights.")
    for url in urls:
        Address.parse(url)
        access_to(url, "chat", (), False)
    given, said = same_format(engine_options(options, engines))
    if said is not None:
        log.print(said, soft_wrap=True)
    served = [Server(engine, engine, tuple(given[engine])) for engine in engines]
    return served + [Server(url.partition("://")[2].rstrip("/"), url=url) for url in urls]


def _check_all(servers: list[Server], model: str | None, plan: Plan, log: Console) -> list[Checked]:
    """One after the other; the first is the reference. Raises `UserMistake` where a server does not start or answer."""
    from loadtests.harness.answers.asking import NoAnswer
    from loadtests.harness.answers.check import check
    from loadtests.harness.client.access import access_to
    from loadtests.harness.command.server_process import ServerFailed
    from loadtests.harness.run.target import UnreachableServer

    results: list[Checked] = []
    reference: dict[str, Answer] | None = None
    for server in servers:

        def say(what: str, label: str = server.label) -> None:
            log.print(f"{label}: {what}")

        try:
            with _served(server, model, say) as url:
                access = access_to(url, "chat", (), False)
                wanted = None if server.engine else model  # our server has one model, under its own name
                found, alone = asyncio.run(check(url, access, server.label, wanted, plan, reference, say))
        except* (ServerFailed, UnreachableServer, NoAnswer) as failures:
            raise UserMistake(f"{server.label}: {_first(failures)}") from None
        results.append(found)
        reference = reference or alone
    return results


@contextmanager
def _served(server: Server, model: str | None, say: Callable[[str], None]) -> Iterator[str]:
    """The URL to ask. An engine is served for as long as the block lasts. Raises `ServerFailed`."""
    from loadtests.harness.command.server_process import ServerProcess

    if server.url:
        yield server.url
        return
    log = Path(tempfile.mkdtemp(prefix="enginebench-")) / "server.log"
    with ServerProcess(server.engine, server.options, model, log) as process:
        say("loading")
        process.wait_until_ready(lambda _: None)
        yield process.url
    shutil.rmtree(log.parent)  # not where the server failed: the message names the file


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
