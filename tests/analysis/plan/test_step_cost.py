"""What a step costs, from steps as a disturbed client sees them."""

import numpy as np
import pytest

from enginebench.analysis.arrays import Floats
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.step_cost import fit_cost
from enginebench.analysis.plan.steps import Steps

COUNT = 400
NONE = np.zeros(0)


def steps(seconds: Floats) -> Steps:
    """Of an engine that decodes for 1 to 4 users."""
    zeros, running = np.zeros(COUNT), np.tile([1.0, 2.0, 3.0, 4.0], COUNT // 4)
    return Steps(
        complete=1.0,
        end=np.linspace(0.1, 40.0, COUNT),
        seconds=seconds,
        running=running,
        prompts=zeros,
        tokens=zeros,
        occupied=running,
        left=zeros,
        alone=np.zeros(COUNT, dtype=bool),
        mixed=np.zeros(COUNT, dtype=bool),
        missed=NONE,
        caught=NONE,
        beside=NONE,
        waited=NONE,
        waited_tokens=NONE,
        tokens_per_step=1.0,
    )


@pytest.mark.filterwarnings("error")
def test_steps_that_were_mostly_read_together_leave_a_finite_cost() -> None:
    """A client that had no CPU reads several chunks at once: most steps seem to take no time, some take long."""
    seconds = np.zeros(COUNT)
    seconds[::5] = np.random.default_rng(1).uniform(0.01, 0.1, COUNT // 5)
    fit = fit_cost([steps(seconds)])
    assert 0 < fit.cost.seconds(1) < 0.1
    assert 0 < fit.drift < 1


def test_steps_of_which_none_can_be_seen_support_no_plan() -> None:
    with pytest.raises(CannotPlan) as error:
        fit_cost([steps(np.zeros(COUNT))])
    assert error.value.reason is NotPlanned.FEW_STEPS
