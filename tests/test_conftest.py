"""The suite's own machinery."""

import pytest


@pytest.mark.xdist_group("named")
def test_groups_reach_the_scheduler(request: pytest.FixtureRequest) -> None:
    """Without groups every worker makes every module's servers and engines, and nothing but the time shows it."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("there are groups only under `pytest -n … --dist loadgroup`")
    assert request.node.nodeid.endswith("@named")
