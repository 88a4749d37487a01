"""The suite's own machinery."""

import tempfile

import pytest

from engines.models.cache import cache_folder
from tests.support.engines.small_model import small_model


@pytest.mark.xdist_group("named")
def test_groups_reach_the_scheduler(request: pytest.FixtureRequest) -> None:
    """Without groups every worker makes every module's servers and engines, and nothing but the time shows it."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("there are groups only under `pytest -n … --dist loadgroup`")
    assert request.node.nodeid.endswith("@named")


def test_models_of_the_suite_are_not_left_in_the_users_cache() -> None:
    assert cache_folder().is_relative_to(tempfile.gettempdir())
    assert small_model().folder.resolve().is_relative_to(cache_folder().resolve())
