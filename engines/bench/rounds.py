"""All variants, round after round: A B, B A, A B …, each time in fresh processes, so that a drift favours none.

A round is one sample of a variant for every comparison: two processes of the same engine differ by more than the
requests within one do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from enginebench.records.command import typed_command
from engines.bench.measure import Prompts
from engines.bench.result import BenchResult, Limit, Result, Round, Series, measure_of
from engines.bench.roofline import arithmetic_of, cost_of, measure_limit, share_of
from engines.bench.settings import BenchSettings, LeftOut, Variant
from engines.bench.turns import Measured, Tell, measure_variant
from engines.contract.base import EngineInfo, Model
from engines.contract.errors import EngineUnavailable
from engines.contract.registry import check_options, engine_class
from loadtests.harness.run.host import host_facts, versions

PACKAGES = ("enginebench", "numpy", "torch", "transformers", "mistralrs")


class Session:
    """`models` has every variant's model by name; `tell` gets a line of progress."""

    def __init__(
        self,
        variants: Sequence[Variant],
        models: Mapping[str | None, Model | None],
        settings: BenchSettings,
        tell: Tell,
    ) -> None:
        self._variants, self._models, self._settings, self._tell = variants, models, settings, tell
        self._made_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._rounds: list[Round] = []
        self._measured: dict[str, list[Measured | None]] = {variant.label: [] for variant in variants}
        self._failures: dict[str, str] = {}

    async def take_round(self) -> None:
        """Measure every variant once more."""
        number = len(self._rounds)
        order = list(self._variants) if number % 2 == 0 else list(reversed(self._variants))
        limits = dict[tuple[str, str], Limit | None]()
        for variant in order:
            measured = await self._measure(variant, number)
            self._measured[variant.label].append(measured)
            if measured is None:
                continue
            key = (measured.info.device, arithmetic_of(measured.info.dtype))
            if key not in limits:
                self._tell(f"round {number + 1}: what {key[0]} allows in {key[1]}")
                limits[key] = await measure_limit(*key)
        measurable = tuple(limit for limit in limits.values() if limit is not None)
        self._rounds.append(Round(tuple(variant.label for variant in order), measurable))

    async def _measure(self, variant: Variant, number: int) -> Measured | None:
        if variant.label in self._failures:
            return None

        def tell(what: str) -> None:
            self._tell(f"round {number + 1}: {variant.label}, {what}")

        tell("loading")
        model = self._models[variant.model]
        prompts = Prompts(model, f"bench round {number}")
        try:
            return await measure_variant(variant, model, self._settings, prompts, tell, with_quality=number == 0)
        except (ValueError, EngineUnavailable) as error:
            self._failures[variant.label] = str(error)
            return None

    def result(self) -> BenchResult:
        """Return the result of the rounds so far."""
        return BenchResult(
            made_at=self._made_at,
            command=typed_command(),
            host=host_facts(),
            versions=versions(*PACKAGES),
            settings=asdict(self._settings),
            rounds=tuple(self._rounds),
            results=tuple(self._result_of(variant) for variant in self._variants),
        )

    def _result_of(self, variant: Variant) -> Result:
        rounds, model = self._measured[variant.label], self._models[variant.model]
        measurements = [measured for measured in rounds if measured is not None]
        info = measurements[0].info if measurements else None
        left_out = dict[str, LeftOut]()
        for measured in measurements:
            lacking = [
                case for case in measured.left_out if not all(case.case in other.values for other in measurements)
            ]
            left_out |= {case.case: case for case in lacking}
        return Result(
            label=variant.label,
            engine=variant.engine,
            model=None if model is None else model.name,
            options=dict(variant.options),
            info=info,
            series=() if info is None else self._series(variant, info, model, rounds),
            left_out=tuple(left_out.values()),
            failure=self._failures.get(variant.label),
            quality=measurements[0].quality if measurements else None,
        )

    def _series(
        self, variant: Variant, info: EngineInfo, model: Model | None, rounds: Sequence[Measured | None]
    ) -> tuple[Series, ...]:
        cost = None if model is None else cost_of(model)
        gpus, key = gpus_of(variant, info), (info.device, arithmetic_of(info.dtype))
        limits = [
            next((limit for limit in round.limits if (limit.device, limit.dtype) == key), None)
            for round in self._rounds
        ]
        names = dict.fromkeys(name for measured in rounds if measured is not None for name in measured.values)
        series = []
        for name in names:
            samples = tuple(() if measured is None else tuple(measured.values.get(name, ())) for measured in rounds)
            measure = measure_of(name)
            series.append(Series(measure, samples, share_of(Series(measure, samples), info.dtype, cost, limits, gpus)))
        return tuple(series)


def gpus_of(variant: Variant, info: EngineInfo) -> int:
    """Return the number of GPUs that share the model; 1 on a CPU, whose limits are those of all its cores."""
    if not info.device.startswith("cuda"):
        return 1
    return engine_class(variant.engine).gpus_of(check_options(variant.engine, variant.options).parsed)
