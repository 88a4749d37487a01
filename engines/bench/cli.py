"""`enginebench bench`: engines measured without HTTP, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enginebench.analysis.settings import GateSettings
from enginebench.settings.flags import AsJson, EngineSettings, Profile, TrustRemoteCode, read_settings, with_flags
from enginebench.settings.schema import UserMistake
from engines.bench.settings import BenchSettings, FileSettings

if TYPE_CHECKING:
    from rich.console import Console

    from engines.bench.document import BenchResult
    from engines.bench.settings import Variant
    from engines.contract.base import Model

app = typer.Typer()


@app.command()
@with_flags(
    FileSettings,
    BenchSettings,
    GateSettings,
    leave_out={"allow_invalid", "markdown"},
)
def bench(
    engines: Annotated[list[str], typer.Argument(help="Engines to measure; `enginebench engines` lists them.")],
    option: EngineSettings = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="[ENGINE.]NAME=A,B", help="Measure once for each value of a setting; may be repeated."),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Model to load; may be repeated, to compare sizes. Default: smollm2-135m."),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    profile: Profile = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Measure engines without HTTP: loading, prefill, decode, generation, batches, memory.

    Each engine runs as when served, in a child process on its pipe protocol. Rounds alternate between the engines, each
    time in fresh processes. Figures are medians with MAD and a 95 % interval, and shares of this machine's measured
    memory bandwidth and arithmetic.

    Exit code: 0 good, 1 worse than the baseline, 2 a usage error, or something that could not be measured.

    Examples:

      enginebench bench transformers candle burn --rounds 5 --output bench.json

      enginebench bench candle -o concurrency=32 --sweep dtype=float32,q8_0,q4_0 --baseline bench.json --save-baseline
    """
    from enginebench.analysis.write.console import stderr
    from enginebench.records.files import write_atomically
    from engines.bench.document import to_json
    from engines.bench.profile import profile_all
    from engines.bench.settings import variants_of
    from loadtests.harness.profiler import Profiler

    log = stderr()
    files: FileSettings = read_settings(FileSettings, given)
    settings: BenchSettings = read_settings(BenchSettings, given)
    gating: GateSettings = read_settings(GateSettings, given)
    if not (as_json or files.output or files.save_baseline or _can_show()):
        raise UserMistake("the table needs packages that are not here: give --output FILE, and read it where they are.")
    before = _before(files)
    variants = variants_of(engines, model or [], option or [], sweep or [])
    profiler = None if profile is None else Profiler.of(profile)
    models = _models(variants, trust_remote_code)

    def keep(found: BenchResult) -> None:
        if before is not None:
            from engines.bench.gate import differences

            differences(before, found, gating.allow_different)  # after the first round, not after the last
        if files.output is not None:
            write_atomically(files.output, to_json(found))

    found = asyncio.run(_measure(variants, models, settings, log, keep))
    failures = [one.failure for one in found.results]
    if profiler is not None:
        measured = [one for one in variants if one.label in {result.label for result in found.measured}]
        place = (files.output or Path("bench.json")).with_suffix(".profiles")
        with log.status(f"Profiling with {profiler.name} …"):
            folders, unprofiled = asyncio.run(profile_all(profiler, measured, models, settings, place))
        failures += unprofiled
        for line in (*unprofiled, *(str(path) for folder in folders for path in sorted(folder.iterdir()))):
            log.print(line, soft_wrap=True)
    if as_json or _can_show():
        _show(found, as_json)
    code = 0 if before is None else _judged(before, found, gating, as_json)
    if any(failures):  # then a baseline stays as it is
        raise typer.Exit(2)
    if files.save_baseline and files.baseline is not None:
        write_atomically(files.baseline, to_json(found))
    if code:
        raise typer.Exit(code)


def _can_show() -> bool:
    """The table has intervals; `make bundle` leaves out what makes them."""
    return all(find_spec(name) is not None for name in ("polars", "scipy"))


def _show(found: BenchResult, as_json: bool) -> None:
    from engines.bench.document import to_json

    if as_json:
        typer.echo(to_json(found), nl=False)
        return
    from enginebench.analysis.write.console import stdout
    from enginebench.analysis.write.terminal import print_document
    from engines.bench.tables import document_of

    print_document(stdout(), document_of(found))


def _before(files: FileSettings) -> BenchResult | None:
    """What the result is compared with; `None` without a baseline, or where the result becomes it."""
    from engines.bench.document import read_result

    if files.save_baseline:
        if files.baseline is None:
            raise UserMistake("say where the baseline is saved: --baseline FILE.")
        if not files.baseline.absolute().parent.is_dir():  # not said after everything was measured
            raise UserMistake(f"the folder of {files.baseline} does not exist.")
    if files.baseline is None or files.save_baseline:
        return None
    if not files.baseline.is_file():
        raise UserMistake(f"there is no baseline at {files.baseline}: make one with --save-baseline.")
    return read_result(files.baseline)


def _models(variants: Sequence[Variant], trust_remote_code: bool) -> Mapping[str | None, Model | None]:
    """Of each name that a variant has; what an engine refuses is found before anything is downloaded. One that cannot
    run here is named in the result, unless none can."""
    from engines.contract.errors import EngineUnavailable
    from engines.contract.registry import spec
    from engines.models.fetch import fetch_and_show
    from engines.process.loading import check_before_download, refuse_missing

    models: dict[str | None, Model | None] = {None: None}
    needed = any(spec(one.engine).needs_model for one in variants)
    missing: list[EngineUnavailable] = []
    for one in variants:
        check_before_download(one.engine, one.options, one.model)
        try:
            refuse_missing(one.engine, one.options)
        except EngineUnavailable as reason:
            missing.append(reason)
    if len(missing) == len(variants):
        raise missing[0]
    for name in dict.fromkeys(one.model for one in variants):
        if name is not None or needed:
            models[name] = fetch_and_show(name, trust_remote_code)
    return models


async def _measure(
    variants: Sequence[Variant],
    models: Mapping[str | None, Model | None],
    settings: BenchSettings,
    log: Console,
    keep: Callable[[BenchResult], None],
) -> BenchResult:
    """`keep` is given the result so far after every round."""
    from engines.bench.session import Session

    with log.status("Measuring …") as status:

        def tell(line: str) -> None:
            status.update(line)
            if not log.is_terminal and line.endswith("loading"):
                log.print(line)

        session = Session(variants, models, settings, tell)
        for _ in range(settings.rounds):
            await session.take_round()
            keep(session.result())
    return session.result()


def _judged(before: BenchResult, found: BenchResult, gating: GateSettings, as_json: bool) -> int:
    """Show the checks, with `--json` only by the exit code and in the file, and return the exit code."""
    from enginebench.analysis.sections.gate import gate_document
    from enginebench.analysis.write.console import stdout
    from enginebench.analysis.write.junit import junit
    from enginebench.analysis.write.terminal import print_document
    from enginebench.records.files import write_atomically
    from engines.bench.gate import judge
    from engines.bench.tables import document_of

    gate = judge(before, found, gating.fail_at / 100, gating.allow_different, gating.allow_missing)
    document = gate_document(gate, "Gate of a bench", document_of(found).tested)
    if gating.junit is not None:
        write_atomically(gating.junit, junit(document))
    if not as_json:
        print_document(stdout(), document)
    return gate.exit_code
