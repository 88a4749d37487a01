"""The course of a race and its confirmation: which variants run in which round.

The course depends only on the scores of the runs, so a stopped race resumes if its earlier scores are replayed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from enginebench.analysis.answer import TuneOutcome
from enginebench.studies.tune.confirmation import LOOKS, NOT_BEGUN, Confirmation, confirm
from enginebench.studies.tune.race import Fit, Round, fit, survivors

NEXT_BEST = 3  # variants that continue the race if its winner fails


@dataclass
class Course:
    """`variants` are those that have run, the default first; `left` are the survivors, the leader first. `race` and
    `pairs` are the log scores of complete rounds; `fit` is the race's. `score` runs a variant in a round,
    returns `None` for a failure, and raises if the default fails. `ended` is called after each round."""

    default: str
    seed: str
    score: Callable[[int, str], float | None]
    ended: Callable[[Course], None] = lambda course: None
    variants: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    race: list[Round] = field(default_factory=list)
    pairs: list[Round] = field(default_factory=list)
    fit: Fit | None = None
    confirmation: Confirmation = NOT_BEGUN
    rounds: int = 0

    def __post_init__(self) -> None:
        self.variants.append(self.default)
        self.left.append(self.default)

    @property
    def winner(self) -> str:
        """Return the variant that led the race when it was over; empty for the default."""
        return self.left[0] if self.race and len(self.left) == 1 and self.left[0] != self.default else ""

    def enter(self, names: Sequence[str]) -> list[float | None]:
        """Run variants and the default. Return log scores relative to the default's, `None` for a failure."""
        new = [name for name in dict.fromkeys(names) if name not in self.variants]
        self.variants += new
        self.left += new
        scores = self._round([self.default, *dict.fromkeys(names)])
        self._add(scores)
        return [scores[name] - scores[self.default] if name in scores else None for name in names]

    def run(self) -> None:
        """Race until one variant is left, and confirm it."""
        assert self.fit is not None
        while True:
            while len(self.left) > 1:
                self.left = survivors(self.fit, self.left)
                if len(self.left) > 1:
                    self._add(self._round(self.left))
            if not self.winner:
                self.confirmation = Confirmation(TuneOutcome.NONE)
                return
            if self._confirm(self.winner):
                return
            self.fit = self._fit()
            self.left = [standing.variant for standing in self.fit.standings][:NEXT_BEST]

    def _confirm(self, winner: str) -> bool:
        """Return whether the winner completed its confirmation without a failure."""
        assert self.fit is not None
        for look in LOOKS:
            while len(self.pairs) < look:
                scores = self._round([winner, self.default])
                if winner in self.failed:
                    self.pairs, self.confirmation = [], NOT_BEGUN
                    return False
                self.pairs.append(scores)
                self.ended(self)
            differences = [scores[winner] - scores[self.default] for scores in self.pairs]
            self.confirmation = confirm(differences, self.fit.spread)
            if self.confirmation.outcome is not TuneOutcome.OPEN:
                break
        return True

    def _add(self, scores: Round) -> None:
        self.race.append(scores)
        self.left = [name for name in self.left if name not in self.failed]
        self.fit = self._fit()
        self.ended(self)

    def _fit(self) -> Fit:
        return fit(self.race, [name for name in self.variants if name not in self.failed])

    def _round(self, names: Sequence[str]) -> Round:
        """Run variants in random order, and return the log scores of those that did not fail."""
        scores = {}
        for name in random.Random(f"{self.seed} {self.rounds}").sample(names, len(names)):
            score = self.score(self.rounds, name)
            if score is None:
                self.failed.add(name)
            else:
                scores[name] = math.log(score)
        self.rounds += 1
        return scores
