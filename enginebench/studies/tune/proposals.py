"""Proposals for variants, if there are too many for a race: Optuna proposes, the race decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from enginebench.settings.schema import UserMistake
from enginebench.studies.tune.variants import Axis, Entrant

MAX_VARIANTS = 40  # in a race without proposals
BATCH, BATCHES = 6, 4  # variants proposed at a time, and the number of batches
FAILED = -100.0  # log score: the proposals only rank them
Values = Mapping[str, str]


def are_too_many(entrants: Sequence[Entrant]) -> bool:
    """Return whether only some of the variants can race. Raises `UserMistake` if nothing can propose them."""
    size = sum(entrant.size for entrant in entrants)
    if size <= MAX_VARIANTS:
        return False
    if len(entrants) > 1:
        raise UserMistake(f"{size} variants of several contenders are too many: name values for {MAX_VARIANTS}.")
    if find_spec("optuna") is None:
        raise UserMistake(
            f"{size} variants are too many for a race of at most {MAX_VARIANTS}: name fewer values, or install what "
            "proposes some of them: pip install 'enginebench[tune]'"
        )
    return True


def propose(axes: Sequence[Axis], seed: int, run: Callable[[list[Values]], list[float | None]]) -> None:
    """Propose batches of values, each based on the scores of earlier batches. `run` returns log scores, `None` for a
    failure. Equal scores lead to equal proposals."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {axis.name: _distribution(axis) for axis in axes}
    # Proposals of a batch are not judged yet: `constant_liar` keeps their distance (Ginsbourger et al. 2010).
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=BATCH, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for _ in range(BATCHES):
        trials = [study.ask(distributions) for _ in range(BATCH)]
        values: list[Values] = [
            {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in trial.params.items()}
            for trial in trials
        ]
        for trial, score in zip(trials, run(values), strict=True):
            study.tell(trial, FAILED if score is None else score)


def _distribution(axis: Axis) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if axis.ends is None:
        return CategoricalDistribution(axis.values)
    low, high = axis.ends
    if low.is_integer() and high.is_integer():
        return IntDistribution(int(low), int(high), log=True)
    return FloatDistribution(low, high, log=True)
