"""Proposals for variants, if there are too many for a race: Optuna proposes, the race decides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from enginebench.settings.schema import UserMistake
from enginebench.studies.tune.variants import MAX_VARIANTS, Axis

BATCH, BATCHES = 6, 4  # variants that are proposed together, and how often
MAX_TRIES = 20  # for one proposal that is not taken yet
Tried = tuple[Mapping[str, str], float | None]
"""Values of the options, and the log score relative to the default's in the same round; `None` for a failure."""


def check_installed(size: int, entrants: int) -> None:
    """Raises `UserMistake` if nothing can propose some of that number of variants."""
    if entrants > 1:
        raise UserMistake(f"{size} variants of several contenders are too many: name values for {MAX_VARIANTS}.")
    if find_spec("optuna") is None:
        raise UserMistake(
            f"{size} variants are too many for a race of at most {MAX_VARIANTS}: name fewer values, or install what "
            "proposes some of them: pip install 'enginebench[tune]'"
        )


def propose(axes: Sequence[Axis], tried: Sequence[Tried], seed: int) -> list[Mapping[str, str]]:
    """Return a batch of values that were not tried, fewer if there are no more."""
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

    def distribution(axis: Axis) -> BaseDistribution:
        if axis.low is None or axis.high is None:
            return CategoricalDistribution(axis.values)
        if axis.whole:
            return IntDistribution(int(axis.low), int(axis.high), log=True)
        return FloatDistribution(axis.low, axis.high, log=True)

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {axis.name: distribution(axis) for axis in axes}
    # Proposals of a batch are not judged yet: `constant_liar` keeps their distance (Ginsbourger et al. 2010).
    sampler = optuna.samplers.TPESampler(seed=seed + len(tried), n_startup_trials=BATCH, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    scores = [score for _, score in tried if score is not None]
    worst = min(scores, default=0.0) - math.log(2)
    for values, score in tried:
        parsed = {
            name: values[name]
            if isinstance(kind, CategoricalDistribution)
            else (int if isinstance(kind, IntDistribution) else float)(float(values[name]))
            for name, kind in distributions.items()
        }
        study.add_trial(
            optuna.trial.create_trial(
                params=parsed, distributions=distributions, value=worst if score is None else score
            )
        )
    taken = [dict(values) for values, _ in tried]
    batch: list[Mapping[str, str]] = []
    for _ in range(BATCH * MAX_TRIES):
        params = study.ask(distributions).params
        values = {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in params.items()}
        if values not in taken:
            taken.append(values)
            batch.append(values)
        if len(batch) == BATCH:
            break
    return batch
