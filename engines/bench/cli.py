"""`enginebench bench`: engines measured without HTTP, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enginebench.settings.flags import (
    MODEL_HELP,
    AsJson,
    EngineSettings,
    TrustRemoteCode,
    read_settings,
    with_flags,
)
from enginebench.settings.schema import UserMistake
from engines.bench.settings import BenchSettings

if TYPE_CHECKING:
    from rich.console import Console

    from engines.bench.result import BenchResult
    from engines.bench.settings import Variant
    from engines.contract.base import Model

app = typer.Typer()


@app.command()
@with_flags(BenchSettings)
def bench(
    engines: Annotated[list[str], typer.Argument(help="Engines to measure; `enginebench engines` lists them.")],
    option: EngineSettings = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="[ENGINE.]NAME=A,B", help="Measure once for each value of a setting; may be repeated."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help=f"{MODEL_HELP} May be repeated, to compare sizes."),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the result of every round to this file, as JSON.")
    ] = None,
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """Measure engines without HTTP: loading, prefill, decode, generation, batches, memory.

    Each engine runs as when served, in a child process on its pipe protocol. Each round measures every engine in turn,
    in a fresh process. Figures are means of the rounds' medians with a 95 % interval, and shares of this machine's
    measured memory bandwidth and arithmetic.

    Exit code: 0 good, 2 a usage error or a failed measurement.

    Examples:

      enginebench bench transformers candle burn --repeat 5 --output bench.json

      enginebench bench candle -o concurrency=32 --sweep dtype=float32,q8_0,q4_0
    """
    from enginebench.settings.console import stderr
    from engines.bench.settings import variants_of

    settings: BenchSettings = read_settings(BenchSettings, flags)
    shown = all(find_spec(name) is not None for name in ("polars", "scipy"))  # `make bundle` leaves them out
    if not (shown or output):
        raise UserMistake("the packages for the table are missing: give --output FILE, and read it where they are.")
    if output is not None and not output.absolute().parent.is_dir():
        raise UserMistake(f"the folder of {output} does not exist.")
    variants = variants_of(engines, model or [], option or [], sweep or [])
    models = _models(variants, trust_remote_code)
    result = asyncio.run(_measure(variants, models, settings, stderr(), output))
    if shown:
        from enginebench.analysis.commands.output import deliver
        from engines.bench.report import bench_document

        deliver(bench_document(result), as_json=as_json)
    if result.failures:
        raise typer.Exit(2)


def _models(variants: Sequence[Variant], trust_remote_code: bool) -> Mapping[str | None, Model | None]:
    """Fetch the model of every variant, by name. Raises `UserMistake` and `EngineUnavailable`.

    What an engine refuses is reported before anything is downloaded. An engine that cannot run here is listed in the
    result, unless no engine can.
    """
    from engines.contract.errors import EngineUnavailable
    from engines.contract.registry import spec
    from engines.models.fetch import fetch_and_show
    from engines.process.engine_loading import check_before_download, refuse_missing

    models: dict[str | None, Model | None] = {None: None}
    needed = any(spec(variant.engine).needs_model for variant in variants)
    missing: list[EngineUnavailable] = []
    for variant in variants:
        check_before_download(variant.engine, variant.options, variant.model)
        try:
            refuse_missing(variant.engine, variant.options)
        except EngineUnavailable as reason:
            missing.append(reason)
    if len(missing) == len(variants):
        raise missing[0]
    for name in dict.fromkeys(variant.model for variant in variants):
        if name is not None or needed:
            models[name] = fetch_and_show(name, trust_remote_code)
    return models


async def _measure(
    variants: Sequence[Variant],
    models: Mapping[str | None, Model | None],
    settings: BenchSettings,
    log: Console,
    output: Path | None,
) -> BenchResult:
    """Measure all rounds, and write the result so far after each."""
    from enginebench.records.files import write_atomically
    from engines.bench.result import to_json
    from engines.bench.rounds import measure_rounds

    with log.status("Measuring …") as status:

        def tell(line: str) -> None:
            status.update(line)
            if not log.is_terminal and line.endswith("loading"):
                log.print(line)

        async for result in measure_rounds(variants, models, settings, tell):
            if output is not None:
                write_atomically(output, to_json(result))
    return result
