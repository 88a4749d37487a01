"""A search by users tries whole numbers, each of them once before it certifies."""

from __future__ import annotations

from random import Random

import pytest

from loadtests.harness.schedule.search.evidence import Evidence, Series
from loadtests.harness.schedule.search.procedure import Goal, Search


def evidence(late: bool, requests: int, rng: Random) -> Evidence:
    """Independent requests, of which almost none is late, or almost all are; one for each slice."""
    bad = [int((rng.random() < 0.01) != late) for _ in range(requests)]
    level = [0.5 + one for one in bad]
    return Evidence([1] * requests, [Series(bad, level, [each**2 for each in level])], [4] * requests)


@pytest.mark.parametrize("capacity", range(3, 40))
def test_no_number_of_users_is_tried_twice_to_locate_capacity(capacity: int) -> None:
    search, rng = Search(Goal((0.95,), start=2, lowest=1, whole=True)), Random(capacity)
    requests = 0
    while (probe := search.probe) is not None and probe.role == "locate":
        requests += 200
        search.look(evidence(probe.load > capacity, requests, rng), seconds=requests / 10, last=requests >= 2000)
        requests = requests if search.probe is probe else 0
    tried = [decision.probe.load for decision in search.decisions if decision.probe.role == "locate"]
    assert len(tried) == len(set(tried)), tried
    assert max(load for load in tried if load <= capacity) * 1.2 >= min(load for load in tried if load > capacity) - 1


def test_neighbouring_numbers_that_are_decided_need_no_refinement() -> None:
    """8 are met and 9 are missed after a hundred requests each: only the certificates are left."""
    search, rng = Search(Goal((0.95,), start=1, lowest=1, whole=True)), Random(8)
    while (probe := search.probe) is not None:
        requests = 100
        while search.probe is probe:
            search.look(evidence(probe.load > 8, requests, rng), seconds=requests / probe.load)
            requests += 100
    assert not [one for one in search.decisions if one.probe.role == "refine"]
    assert search.estimate == 8
    assert sum(one.requests for one in search.decisions) < 5000
