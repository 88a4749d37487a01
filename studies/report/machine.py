"""The machine and the software of a study, from its sittings, or else from its runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from records.formatting import format_bytes, in_words
from studies.report.contents import StudyReport


def machine_of(study: StudyReport) -> str:
    """`AMD EPYC, 2 cores, 25.3 GB, no GPU`; of several machines all."""
    return "; ".join(distinct(_named(host, gpus) for host, gpus in _hosts(study))) or "an unknown machine"


def _hosts(study: StudyReport) -> Iterator[tuple[Mapping[str, Any], tuple[Mapping[str, Any], ...]]]:
    if study.source.sittings:
        yield from ((sitting.host, sitting.gpus) for sitting in study.source.sittings)
    else:
        yield from ((run.host, ()) for run in study.runs)
        yield from ((bench.result.host, ()) for bench in study.benches)


def _named(host: Mapping[str, Any], gpus: tuple[Mapping[str, Any], ...]) -> str:
    memory = host.get("memory")
    parts = [str(host.get("cpu") or "an unknown CPU")]
    parts += [f"{host['cores']} cores"] if host.get("cores") else []
    parts += [format_bytes(memory)] if isinstance(memory, int) else []
    names = [str(gpu.get("name")) for gpu in gpus]
    counts = [f"{names.count(name)} × {name}" if names.count(name) > 1 else name for name in distinct(names)]
    return ", ".join([*parts, *(counts or ["no GPU"])])


def distinct(values: Iterable[object]) -> list[str]:
    return [str(value) for value in dict.fromkeys(values) if value]


def gpu_facts(study: StudyReport) -> str:
    """Driver and power limit of each GPU."""
    gpus = [gpu for sitting in study.source.sittings for gpu in sitting.gpus]
    texts = [", ".join(f"{name.replace('_', ' ')} {value}" for name, value in gpu.items()) for gpu in gpus]
    return in_words(distinct(texts))
