"""How far are the predictions of `enginebench plan` off on real engines, at loads beyond those it was fitted to?

    python -m validation.plan.real_engines --engine candle --engine mistralrs     # about five minutes an engine
    python -m validation.plan.real_engines --engine vllm --output validation/results/plan_real_engines.json

Each engine is served on one half of the cores, and measured from the other half at all loads in mixed order, several
times over. The model is fitted to the loads of `--fit`; those of `--unseen`, up to 1.5 times beyond, are predicted.
Other work on the machine makes steps longer: `drift` is the standard deviation of measured over fitted step time in
periods of ten seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from enginebench.analysis.data.run_data import RunData, load_run
from enginebench.analysis.plan.accuracy import fit_stages, predict_unseen
from enginebench.analysis.plan.measured import BEYOND, MeasuredStage, declared_slots, measured_stages
from enginebench.analysis.plan.model import EngineModel
from enginebench.analysis.plan.not_planned import CannotPlan
from enginebench.settings.schema import whole_numbers
from engines.machine.devices import usable_cores
from loadtests.harness.command.server_process import PYTHON
from validation.plan.planned_fleet import enginebench
from validation.processes import on_cores, started_server
from validation.program import command_line, write

TARGETS = {"tpot_p50": 0.10, "e2e_mean": 0.10, "throughput": 0.10, "ttft_p95": 0.20}
WARM_UP_SECONDS = 8.0  # of each load: in its first minute an engine is slower
MIN_REQUESTS = 100  # of one load, over all its stages
OPTIONS: Mapping[str, tuple[str, ...]] = {  # of other engines, their defaults
    "candle": ("concurrency=16",),
    "mistralrs": ("concurrency=16",),
    "burn": ("concurrency=16",),
}


@dataclass(frozen=True, slots=True)
class Unseen:
    """A load that the model had not seen, over all its stages: predicted over measured, less 1."""

    users: int
    requests: int
    errors: Mapping[str, float]

    @property
    def verdict(self) -> str:
        if self.requests < MIN_REQUESTS:
            return f"fewer than {MIN_REQUESTS} requests: too few to judge"
        within = all(abs(self.errors[figure]) <= most for figure, most in TARGETS.items())
        return "within the targets" if within else "NOT within the targets"


@dataclass(frozen=True, slots=True)
class Result:
    """The predictions for an engine. `refused` is the reason why there is no prediction."""

    engine: str
    options: tuple[str, ...]
    fitted: tuple[int, ...]
    drift: float | None
    model: Mapping[str, Any] | None
    unseen: tuple[Unseen, ...]
    refused: str | None
    load_average: tuple[float, float]  # of the machine, before and after
    made_at: str


def mixed(loads: Sequence[int], passes: int) -> list[int]:
    """Return every load once in each pass, in random order."""
    rng = Random(0)
    return [load for _ in range(passes) for load in rng.sample(list(loads), len(loads))]


def measure(engine: str, options: Sequence[str], stages: Sequence[int], settings: argparse.Namespace) -> RunData:
    """Measure the engine on half of the cores, so that its steps do not depend on what the load generator needs."""
    words = [word for option in options for word in ("-o", option)]
    model = ["--model", settings.model] if settings.model else []
    cores = usable_cores()
    half = len(cores) // 2
    with ExitStack() as stack:
        with on_cores(cores[half:]):
            serve = [*PYTHON, "-m", "enginebench", "serve", engine, *words, *model, "--port", "0"]
            _, port = stack.enter_context(started_server(serve))
        with on_cores(cores[:half] or cores):
            load(port, sorted(set(stages), reverse=True), WARM_UP_SECONDS, f"warm-up-{engine}", settings)
            load(port, stages, settings.seconds, f"plan-{engine}", settings)
        newest = max(settings.runs.glob(f"*plan-{engine}*/meta.json"), key=lambda path: path.stat().st_mtime)
        return load_run(newest.parent)


def load(port: int, stages: Sequence[int], seconds: float, label: str, settings: argparse.Namespace) -> None:
    enginebench(
        "run", "concurrent", "--url", f"http://127.0.0.1:{port}", "--stages", ",".join(map(str, stages)),
        "--stage-seconds", f"{seconds:g}", "--prompt-tokens", settings.prompt_tokens,
        "--output-tokens", settings.output_tokens, "--runs", str(settings.runs), "--allow-invalid", "--label", label,
    )  # fmt: skip


def fit_and_predict(run: RunData, fit: Sequence[int], unseen: Sequence[int]) -> tuple[EngineModel, tuple[Unseen, ...]]:
    """Return the model of the fitted loads, and its errors on the others. Raises `CannotPlan`."""
    stages = measured_stages([run])
    model = fit_stages([stage for stage in stages if stage.load.value in fit], declared_slots([run]))
    return model, tuple(
        _unseen(model, users, [stage for stage in stages if stage.load.value == users]) for users in unseen
    )


def _unseen(model: EngineModel, users: int, stages: Sequence[MeasuredStage]) -> Unseen:
    if not stages:
        raise SystemExit(f"no stage with {users} users was measured.")
    errors = predict_unseen(model, f"{users} users", stages).errors
    return Unseen(users, sum(len(stage.lengths) for stage in stages), {name: errors[name] for name in TARGETS})


def result_of(engine: str, settings: argparse.Namespace) -> Result:
    options = tuple(settings.option or OPTIONS.get(engine, ()))
    before = os.getloadavg()[0]
    run = measure(engine, options, mixed([*settings.fit, *settings.unseen], settings.passes), settings)
    refused: str | None = None
    model: EngineModel | None = None
    unseen: tuple[Unseen, ...] = ()
    try:
        model, unseen = fit_and_predict(run, settings.fit, settings.unseen)
    except CannotPlan as reason:
        refused = str(reason)
    return Result(
        engine,
        options,
        tuple(settings.fit),
        None if model is None else model.fit.drift or None,
        None if model is None else described(model),
        unseen,
        refused,
        (before, os.getloadavg()[0]),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


def described(model: EngineModel) -> dict[str, Any]:
    """Describe the model for JSON, without the noise of each step."""
    values = asdict(model)
    fit = {name: value for name, value in values["fit"].items() if name != "noise"}
    return values | {"fit": fit, "slots_from": model.slots_from.value}


def print_result(result: Result) -> None:
    if result.refused is not None:
        print(f"{result.engine}: {result.refused}")
        return
    drift = "unknown: steps are few" if result.drift is None else f"{result.drift:.1%}"
    print(f"{result.engine}, fitted to {', '.join(map(str, result.fitted))} users; drift of the machine {drift}")
    for unseen in result.unseen:
        errors = ", ".join(f"{figure} {100 * error:+.1f} %" for figure, error in unseen.errors.items())
        print(f"  {unseen.users} users ({unseen.requests} requests): {errors}: {unseen.verdict}", flush=True)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--engine", action="append", required=True, help="may be repeated")
    parser.add_argument("-o", "--option", action="append", help="of the engine, in place of this program's own")
    parser.add_argument("--model", help="default: the embedded model")
    parser.add_argument("--fit", type=whole_numbers, default=[1, 2, 4, 6, 8], help="users (default 1,2,4,6,8)")
    parser.add_argument("--unseen", type=whole_numbers, default=[10, 12], help="users (default 10,12)")
    parser.add_argument("--passes", type=int, default=2, help="stages of each load (default 2)")
    parser.add_argument("--seconds", type=float, default=25.0, help="of a stage, warm-up included (default 25)")
    parser.add_argument("--prompt-tokens", default="uniform:16-64")
    parser.add_argument("--output-tokens", default="uniform:8-32")
    parser.add_argument("--runs", type=Path, help="keep the runs there")
    settings = parser.parse_args()
    if max(settings.unseen) > BEYOND * max(settings.fit):
        sys.exit(f"predictions go up to {BEYOND} times the largest fitted load.")
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        settings.runs = settings.runs or Path(temporary)
        for engine in settings.engine:
            results.append(result_of(engine, settings))
            print_result(results[-1])
    output = settings.output
    measured = json.loads(output.read_text())["engines"] if output is not None and output.exists() else {}
    engines = measured | {result.engine: asdict(result) for result in results}  # other engines keep their figures
    write(settings.output, "transformers", "mistralrs", "vllm", targets=TARGETS, engines=engines)


if __name__ == "__main__":
    main()
