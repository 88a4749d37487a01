"""The hold-out program, on a server of known cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginebench.analysis.data.run_data import RunData, load_run
from validation.plan.batching_server import Asked, BatchingServer, users, write_run
from validation.plan.real_engines import TARGETS, fit_and_predict, mixed

FIT, UNSEEN = (4, 8), (12,)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunData:
    """Two passes over all loads, in mixed order."""
    folder = tmp_path_factory.mktemp("hold-out") / "run"
    return load_run(write_run(folder, BatchingServer(jitter=0.02), users(*mixed((*FIT, *UNSEEN), 2)), Asked()))


def test_loads_that_were_not_fitted_are_predicted(run: RunData) -> None:
    model, (unseen,) = fit_and_predict(run, FIT, UNSEEN)
    assert model.fit.cost.base == pytest.approx(0.02, rel=0.02)
    assert unseen.users == 12
    assert unseen.requests > 300
    assert set(unseen.errors) == set(TARGETS)
    assert all(abs(error) < 0.06 for error in unseen.errors.values())
    assert unseen.verdict == "within the targets"


def test_what_is_off_or_rarely_measured_is_said(run: RunData) -> None:
    _, (unseen,) = fit_and_predict(run, FIT, UNSEEN)
    assert replace(unseen, errors={**unseen.errors, "throughput": -0.11}).verdict == "NOT within the targets"
    assert "too few to judge" in replace(unseen, requests=99).verdict


def test_a_load_that_was_not_measured_is_a_sentence(run: RunData) -> None:
    with pytest.raises(SystemExit, match="no stage with 10 users"):
        fit_and_predict(run, FIT, (10,))


def test_every_pass_has_every_load_once_in_an_order_of_its_own() -> None:
    order = mixed((1, 2, 4, 8, 12), 3)
    passes = [order[k : k + 5] for k in (0, 5, 10)]
    assert all(sorted(one) == [1, 2, 4, 8, 12] for one in passes)
    assert passes[0] != passes[1]
