"""`enginebench import`: other tools' results as runs, to be reported on, compared and gated."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from enginebench.analysis.formats.results import Results

MAX_BYTES = 1 << 30  # of a file: as JSON it takes ten times the memory
BLANKS = re.compile(r"\s*")
KNOWN = "guidellm's benchmarks.json (0.4 to 0.7), and the JSON of vllm bench serve"


def import_results(
    files: Annotated[list[Path], typer.Argument(help="Results of other tools; several of one label are repeats.")],
    runs: Annotated[Path, typer.Option(help="Folder to write the runs into.", metavar="FOLDER")] = Path("runs"),
    label: Annotated[
        str | None,
        typer.Option(help="What reports call the runs. Default: the model, else the file's name.", show_default=False),
    ] = None,
) -> None:
    """Import results of guidellm or vLLM.

    benchmarks.json (guidellm 0.4 to 0.7), the JSON of `vllm bench serve --save-result --save-detailed`. Of a file that
    --append-result has written, each result becomes a run.

    Numbers that a file lacks are dashes; a finding of the run names them.

    Exit code: 0 good, 2 a file that cannot be imported.

    Examples:

      enginebench import benchmarks.json --label vllm

      enginebench import results/run-1.json results/run-2.json results/run-3.json --label vllm --runs runs
    """
    from enginebench.analysis.formats.results import write_run

    repeats: dict[str, int] = {}
    for file in files:
        for results in read(file):
            name = label or (results.source.model or file.stem).rpartition("/")[2]
            repeat = repeats.get(name, 0)
            repeats[name] = repeat + 1
            folder = write_run(results, file, runs, name, repeat)
            requests = sum(len(stage.requests) for stage in results.stages)
            typer.echo(f"{folder}: {requests} requests of {results.source.tool}")
            typer.echo(f"missing in this file: {'; '.join(results.source.lacks)}", err=True)


def read(path: Path) -> list[Results]:
    """Raises `NotImportable`, and `OSError` where the file cannot be read."""
    documents = _documents(path)
    return [
        _results(document, f"{path}, result {number}," if len(documents) > 1 else str(path))
        for number, document in enumerate(documents, 1)
    ]


def _results(document: dict[str, Any], path: str) -> Results:
    from enginebench.analysis.formats import guidellm, vllm_bench
    from enginebench.analysis.formats.results import NotImportable
    from enginebench.records.plain_text import plain

    for fits, reader in ((guidellm.is_guidellm, guidellm.read), (vllm_bench.is_vllm, vllm_bench.read)):
        try:
            if fits(document):
                return reader(document)
        except NotImportable as error:
            raise NotImportable(f"{path} {error}") from None
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            cause = plain(repr(error))[:200]
            raise NotImportable(f"{path} looks like a known format but cannot be read ({cause}).") from None
    raise NotImportable(f"{path} has an unknown format; known are {KNOWN}.")


def _documents(path: Path) -> list[dict[str, Any]]:
    """Decode one document, or those that vLLM has appended, each on a line."""
    from enginebench.analysis.formats.results import NotImportable
    from enginebench.records.files import bytes_of

    documents: list[dict[str, Any]] = []
    at, decoder = 0, json.JSONDecoder()
    try:
        content = bytes_of(path, MAX_BYTES)
    except ValueError as error:
        raise NotImportable(str(error)) from None
    try:
        text = content.decode("utf-8-sig").rstrip()
        while at < len(text) or not documents:
            document, at = decoder.raw_decode(text, BLANKS.match(text, at).end())  # type: ignore[union-attr]
            documents.append(document if isinstance(document, dict) else {})
    except UnicodeDecodeError:  # its repr() would be the whole file
        raise NotImportable(f"{path} is not text in UTF-8: convert it first.") from None
    except (ValueError, RecursionError) as error:
        raise NotImportable(f"{path} is not JSON ({error}); known are {KNOWN}.") from None
    return documents
