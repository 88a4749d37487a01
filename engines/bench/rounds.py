"""All variants, round after round: A B, B A, A B …, each time in fresh processes, so that a drift favours none.

A round is one sample of a variant for every comparison: two processes of the same engine differ by more than requests
within one process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from statistics import median

from enginebench.records.command import typed_command
from engines.bench.measure import Prompts
from engines.bench.result import EVERYTHING, MEDIAN, METRICS, BenchEngine, BenchResult, LeftOut, Row
from engines.bench.roofline import Limit, arithmetic_of, cost_of, measure_limit, shares_of
from engines.bench.settings import BenchSettings, Variant
from engines.bench.turns import Tell, Turn, measure_variant
from engines.contract.base import EngineInfo, Model
from engines.contract.errors import EngineUnavailable
from engines.contract.registry import check_options, engine_class
from loadtests.harness.run.host import host_facts, versions

PACKAGES = ("enginebench", "numpy", "torch", "transformers", "mistralrs")


async def measure_rounds(
    variants: Sequence[Variant], models: Mapping[str | None, Model | None], settings: BenchSettings, tell: Tell
) -> AsyncIterator[BenchResult]:
    """Yield the result so far after each round. `models` has every variant's model by name; `tell` reports progress."""
    made_at, host = datetime.now(UTC).isoformat(timespec="seconds"), host_facts()
    engines = {variant.label: _engine(variant, models[variant.model]) for variant in variants}
    rows: list[Row] = []
    missing: dict[tuple[str, str], LeftOut] = {}
    for number in range(settings.rounds):
        limits = dict[tuple[str, str], Limit | None]()
        for variant in variants if number % 2 == 0 else reversed(variants):
            label, model = variant.label, models[variant.model]
            if (label, EVERYTHING) in missing:
                continue

            def tell_more(what: str, prefix: str = f"round {number + 1}: {label}, ") -> None:
                tell(prefix + what)

            tell_more("loading")
            prompts = Prompts(model, f"bench round {number}")
            try:
                turn = await measure_variant(variant, model, settings, prompts, tell_more, with_quality=number == 0)
            except (ValueError, EngineUnavailable) as error:
                missing[label, EVERYTHING] = LeftOut(label, EVERYTHING, str(error))
                continue
            before = engines[label]
            engines[label] = replace(before, info=before.info or turn.info, quality=before.quality or turn.quality)
            missing |= {(label, case): LeftOut(label, case, why) for case, why in turn.left_out.items()}
            key = (turn.info.device, arithmetic_of(turn.info.dtype))
            if key not in limits:
                tell(f"round {number + 1}: what {key[0]} allows in {key[1]}")
                limits[key] = await measure_limit(*key)
            rows += _rows(variant, model, number, turn, limits[key])
        rows += [row for limit in limits.values() if limit is not None for row in limit.rows(number)]
        yield BenchResult(
            made_at=made_at,
            command=typed_command(),
            host=host,
            versions=versions(*PACKAGES),
            settings=asdict(settings),
            engines=tuple(engines.values()),
            rows=tuple(rows),
            left_out=tuple(missing.values()),
        )


def _engine(variant: Variant, model: Model | None) -> BenchEngine:
    return BenchEngine(variant.label, variant.engine, None if model is None else model.name, dict(variant.options))


def _rows(variant: Variant, model: Model | None, number: int, turn: Turn, limit: Limit | None) -> Iterator[Row]:
    """Yield the median of each metric in this round, and the shares of the limit."""
    cost = None if model is None else cost_of(model)
    gpus = gpus_of(variant, turn.info)
    for (name, size), samples in turn.samples.items():
        metric, value = METRICS[name], median(samples)
        unit = None if size is None else "requests" if metric.family == "batch" else "tokens"
        row = Row(
            metric=name,
            statistic=MEDIAN,
            unit=metric.unit,
            value=value,
            repeat=number,
            engine=variant.label,
            model=None if model is None else model.name,
            load=size,
            load_unit=unit,
            stage=None if size is None else f"{size} {unit}",
            n=len(samples),
        )
        yield row
        if cost is not None and limit is not None and gpus:
            for statistic, share in shares_of((name, size), value, turn.info.dtype, cost, limit, gpus):
                yield replace(row, statistic=statistic, unit="share", value=share)


def gpus_of(variant: Variant, info: EngineInfo) -> int:
    """Return the number of GPUs that share the model: 0 if another machine computes, whose limits are unknown; 1 on a
    CPU, whose limits are those of all its cores."""
    if not info.device.startswith("cuda"):
        return 1
    return engine_class(variant.engine).gpus_of(check_options(variant.engine, variant.options).parsed)
