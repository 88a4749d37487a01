"""How large are the errors of `enginebench plan` on real engines, at loads beyond the fitted ones?

    LENGTHS="--prompt-tokens uniform:16-64 --output-tokens uniform:4-12"
    taskset -c 0 enginebench serve llamacpp -o dtype=q8_0 --port 8000 &
    taskset -c 1 enginebench run concurrent http://127.0.0.1:8000 $LENGTHS \
        --stages 12,10,8,6,4,2,1 --stage-seconds 8
    taskset -c 1 enginebench run concurrent http://127.0.0.1:8000 $LENGTHS --label llamacpp --runs plan-runs \
        --stages 8,4,12,2,10,1,6,4,10,8,1,12,6,2,1,12,6,10,2,4,8 --stage-seconds 15 --allow-invalid
    python -m validation.plan.real_engines plan-runs/* --output validation/results/plan_real_engines.json

An engine is served on one half of the cores and measured from the other half, first to warm it up, then several times
at all loads in mixed order. The model is fitted to the loads of at most `FITTED` users; higher loads are predicted.
Other work on the machine makes steps longer: `drift` is the standard deviation of measured over fitted step time in
periods of ten seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from enginebench.analysis.data.run_data import RunData, load_run
from enginebench.analysis.plan.accuracy import fit_stages, predict_unseen
from enginebench.analysis.plan.measured import declared_slots, measured_stages
from validation.program import command_line, write

FITTED = 8  # maximum users
TARGETS = {"tpot_p50": 0.10, "e2e_mean": 0.10, "throughput": 0.10, "ttft_p95": 0.20}


def fit_and_predict(run: RunData) -> dict[str, Any]:
    """Return the drift of the machine, and for each load beyond the fitted ones the errors: predicted ÷ measured − 1.
    Raises `CannotPlan`."""
    stages = measured_stages([run])
    model = fit_stages([stage for stage in stages if stage.load.value <= FITTED], declared_slots([run]))
    unseen = []
    for users in sorted({stage.load.value for stage in stages if stage.load.value > FITTED}):
        measured = [stage for stage in stages if stage.load.value == users]
        errors = predict_unseen(model, f"{users:g} users", measured).errors
        requests = sum(len(stage.lengths) for stage in measured)
        unseen.append({"users": users, "requests": requests, "errors": {name: errors[name] for name in TARGETS}})
    return {"drift": model.fit.drift or None, "unseen": unseen}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("run", type=Path, nargs="+")
    settings = parser.parse_args()
    runs = [load_run(folder) for folder in settings.run]
    engines = {run.meta.label: fit_and_predict(run) for run in runs}
    for label, result in engines.items():
        print(f"{label}: drift of the machine {result['drift'] or 0:.1%}")
        for load in result["unseen"]:
            errors = ", ".join(f"{figure} {100 * error:+.1f} %" for figure, error in load["errors"].items())
            print(f"  {load['users']:g} users ({load['requests']} requests): {errors}")
    write(settings.output, targets=TARGETS, engines=engines)


if __name__ == "__main__":
    main()
