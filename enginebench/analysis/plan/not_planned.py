"""Why a candidate has no number of replicas."""

from __future__ import annotations

from enum import Enum


class NotPlanned(Enum):
    """The values are the words of a cell."""

    NOT_MEASURED = "not measured"  # no load was judged by the SLO
    MISSED = "misses the SLO"  # at the lowest load that was measured
    OTHER_UNIT = "other unit"  # measured in users, but the peak is a rate, or vice versa
    # Reasons of the simulation only.
    NO_BATCH = "no batch"  # each request has its own steps: the engine computes no common batch
    FEW_STEPS = "few steps"  # the records show too few steps of the engine: no streamed answers, or too short
    FAILURES = "failures"  # too many requests failed at every load
    OBJECTIVE = "objective"  # the SLO limits only failures, which are not simulated
    ONE_LOAD = "one load"  # there is no second load to predict
    POOR_FIT = "poor fit"  # the error of held-out predictions is above the limit
    OUT_OF_REACH = "out of reach"  # even an otherwise idle replica misses the SLO, or misses it too often
    TOO_FAST = "too fast"  # the fitted steps take hardly any time


class CannotPlan(Exception):
    """Raised if nothing can be simulated."""

    def __init__(self, reason: NotPlanned) -> None:
        super().__init__(reason.value)
        self.reason = reason
