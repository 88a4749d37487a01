"""`enginebench import`: other tools' results as runs, to be reported on, compared and gated."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enginebench.analysis.settings import RunsSettings
from enginebench.records.formatting import counted
from enginebench.settings.flags import read_settings, with_flags

if TYPE_CHECKING:
    from enginebench.analysis.formats.benchmark_report_reader import ReportFile
    from enginebench.analysis.formats.results import Results

MAX_BYTES = 1 << 30  # per file: decoded JSON takes ten times the memory
MAX_YAML_BYTES = 32 << 20  # takes half a minute
BLANKS = re.compile(r"\s*")
KNOWN = (
    "guidellm's benchmarks.json (0.4 to 0.8), aiperf's profile_export.jsonl, the JSON of vllm bench serve, and llm-d's "
    "Benchmark Report 0.2"
)
YAML = (".yaml", ".yml")


@with_flags(RunsSettings, leave_out=("tokenizer",))
def import_results(
    files: Annotated[list[Path], typer.Argument(help="Results of other tools; several with one label are repeats.")],
    label: Annotated[
        str | None,
        typer.Option(help="Name of the runs in reports. Default: the model, else the file's name.", show_default=False),
    ] = None,
    **flags: Any,
) -> None:
    """Import results of guidellm, aiperf or vLLM, and Benchmark Reports of llm-d.

    benchmarks.json (guidellm 0.4 to 0.8), profile_export.jsonl (aiperf with --export-level records), the JSON of `vllm
    bench serve --save-result --save-detailed`. Each result in a file written by --append-result becomes a run.

    Benchmark Report 0.2 and 0.2.1 in YAML or JSON, from llm-d-benchmark (for inference-perf, aiperf, guidellm and vLLM)
    or `enginebench report --format br`. Reports of one experiment (run.eid) are the stages of one run. They hold
    statistics, not requests: `report --slo` and `plan` do not take them.

    Numbers that a file lacks are shown as dashes; a finding of the run names them.

    Exit code: 0 good, 2 a file that cannot be imported.

    Examples:

      enginebench import benchmarks.json --label vllm

      enginebench import results/run-1.json results/run-2.json results/run-3.json --label vllm --runs runs

      enginebench import results/benchmark_report_v0.2*.yaml --label llm-d
    """
    from enginebench.analysis.formats import benchmark_report_runs as report_runs
    from enginebench.analysis.formats.results import Results, write_run

    runs: Path = read_settings(RunsSettings, flags).runs
    repeats: Counter[str] = Counter()
    reports: list[ReportFile] = []
    for file, results in ((path, results) for path in files for results in read(path)):
        if isinstance(results, Results):
            name = label or (results.model or file.stem).rpartition("/")[2]
            with _readable(str(file)):
                folder = write_run(results, file, runs, name, repeats[name])
            repeats[name] += 1
            requests = sum(len(stage.requests) for stage in results.stages)
            typer.echo(f"{folder}: {requests} requests of {results.tool}")
            typer.echo(f"missing in this file: {'; '.join(results.lacks)}", err=True)
        else:
            reports.append(results)
    for run in report_runs.runs_of(reports):
        name = label or run[0].name
        with _readable(str(run[0].path)):
            folder, summary, origin = report_runs.write_run(run, runs, name, repeats[name])
        repeats[name] += 1
        stages = counted(len(summary.stages), "stage")
        typer.echo(f"{folder}: statistics of {summary.requests} requests of {origin.tool} in {stages}")
        typer.echo(f"missing in these reports: {'; '.join(origin.lacks)}", err=True)


def read(path: Path) -> list[Results | ReportFile]:
    """Read a file. Raises `NotImportable`, and `OSError` if the file cannot be read."""
    from enginebench.analysis.formats import aiperf

    documents = _documents(path)
    if aiperf.is_aiperf(documents[0]):
        with _readable(str(path)):
            return [aiperf.read(documents)]
    return [
        _results(document, path, f"{path}, result {number}," if len(documents) > 1 else str(path))
        for number, document in enumerate(documents, 1)
    ]


def _results(document: dict[str, Any], path: Path, name: str) -> Results | ReportFile:
    from enginebench.analysis.formats import benchmark_report_reader as reports
    from enginebench.analysis.formats import guidellm, vllm_bench
    from enginebench.analysis.formats.results import NotImportable

    with _readable(name):
        if reports.is_report(document):
            return reports.read(document, path)
        for fits, reader in ((guidellm.is_guidellm, guidellm.read), (vllm_bench.is_vllm, vllm_bench.read)):
            if fits(document):
                return reader(document)
        raise NotImportable(f"has an unknown format; known are {KNOWN}.")


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Put the name of the file before a reader's message. Raises `NotImportable`."""
    from enginebench.analysis.formats.results import NotImportable
    from enginebench.records.plain_text import plain

    try:
        yield
    except NotImportable as error:
        raise NotImportable(f"{name} {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        cause = plain(repr(error))[:200]
        raise NotImportable(f"{name} looks like a known format but cannot be read ({cause}).") from None


def _documents(path: Path) -> list[dict[str, Any]]:
    """Decode one document, or the documents that vLLM has appended, one per line."""
    import yaml

    from enginebench.analysis.formats.results import NotImportable
    from enginebench.records.files import bytes_of
    from enginebench.records.plain_text import plain

    documents: list[dict[str, Any]] = []
    at, decoder = 0, json.JSONDecoder()
    try:
        content = bytes_of(path, MAX_YAML_BYTES if path.suffix in YAML else MAX_BYTES)
    except ValueError as error:
        raise NotImportable(str(error)) from None
    try:
        text = content.decode("utf-8-sig").rstrip()
        if path.suffix in YAML:
            return [_yaml(text)]
        while at < len(text) or not documents:
            document, at = decoder.raw_decode(text, BLANKS.match(text, at).end())  # type: ignore[union-attr]
            documents.append(document if isinstance(document, dict) else {})
    except UnicodeDecodeError:  # its repr() would be the whole file
        raise NotImportable(f"{path} is not text in UTF-8: convert it first.") from None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        form, cause = "YAML" if path.suffix in YAML else "JSON", plain(str(error))
        raise NotImportable(f"{path} is not {form} ({cause}); known are {KNOWN}.") from None
    return documents


def _yaml(text: str) -> dict[str, Any]:
    """Load YAML. Raises `ValueError` for aliases, with which a small file can represent an endless document."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, if available
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
        raise ValueError("it has aliases")
    document = yaml.load(text, Loader=loader)
    return document if isinstance(document, dict) else {}
