"""The course of a race: what its records mean, and what runs next. Replayed from the records, so that a race that was
stopped goes on as if it had not been."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from enginebench.analysis.answer import TuneOutcome
from enginebench.records.view import Estimate
from enginebench.studies.tune.confirmation import Confirmation, confirm, pairs_for
from enginebench.studies.tune.folder import RunRecord
from enginebench.studies.tune.race import Fit, Round, fit, survivors

NOT_BEGUN = Confirmation(TuneOutcome.OPEN, Estimate(None))


@dataclass(frozen=True, slots=True)
class Course:
    """`variants` are all of them, the default first. `following` are those that still have to run in `round`; none at
    the end. `left` are the survivors, the leader first, `failed` the reasons of the variants that were dropped. `race`
    and `pairs` are the log scores of complete rounds. `fit` is of the race."""

    variants: tuple[str, ...]
    round: int
    following: tuple[str, ...]
    left: tuple[str, ...]
    failed: Mapping[str, str]
    race: tuple[Round, ...]
    pairs: tuple[Round, ...]
    fit: Fit | None
    confirmation: Confirmation

    @property
    def in_race(self) -> bool:
        return len(self.left) > 1


def course_of(
    records: Sequence[RunRecord], variants: Sequence[str], batches: Sequence[int], seed: int, pairs_a_look: int = 0
) -> Course:
    """`variants` are in order, the default first. The first rounds have a batch of proposals each, of these sizes,
    next to the default; `batches` is empty if all variants run from the first round on. `pairs_a_look` is 0 if
    the spread decides."""
    default = variants[0]
    ends = [1 + sum(batches[: k + 1]) for k in range(len(batches))]
    by_round: dict[int, dict[str, RunRecord]] = {}
    for record in records:
        by_round.setdefault(record.round, {}).setdefault(record.variant, record)
    race: list[Round] = []
    pairs: dict[str, list[Round]] = {}
    failed: dict[str, str] = {}
    number = 0
    while True:
        alive = [name for name in variants if name not in failed]
        race_fit = fit(race, alive) if race else None
        confirmation = NOT_BEGUN
        if number < len(ends):
            batch = variants[ends[number] - batches[number] : ends[number]]
            left, participants = alive, [default, *batch]
        elif default in failed:
            left, participants = [], []
        else:
            left = survivors(race, alive, max(len(ends), 1)) if race else alive
            participants = list(left)
        challenger = left[0] if len(left) == 1 and race else default
        if challenger != default:
            assert race_fit is not None
            own = pairs.setdefault(challenger, [])
            differences = [scores[challenger] - scores[default] for scores in own]
            confirmation = confirm(differences, race_fit.spread, pairs_a_look or pairs_for(race_fit.spread))
            participants = [challenger, default] if confirmation.outcome is TuneOutcome.OPEN else []
        elif len(left) == 1:
            participants = []
            confirmation = Confirmation(TuneOutcome.NONE, Estimate(None))
        done = by_round.get(number, {})
        order = random.Random(f"{seed} {number}").sample(participants, len(participants))
        missing = tuple(name for name in order if name not in done)
        if missing or not participants or (default in failed):
            own = pairs.get(challenger, [])
            return Course(
                tuple(variants), number, missing, tuple(left), failed, tuple(race), tuple(own), race_fit, confirmation
            )
        for name in participants:
            if done[name].score is None:
                failed[name] = done[name].reason or ""
        scores = {name: math.log(score) for name in participants if (score := done[name].score) is not None}
        if challenger == default:
            race += [scores] if scores else []
        elif len(scores) == 2:
            pairs[challenger].append(scores)
        number += 1
