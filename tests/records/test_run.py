"""What `meta.json` knows of the client's calibration."""

import dataclasses

import pytest

from tests.support.records import META


@pytest.mark.parametrize(
    ("load", "error"),
    [
        pytest.param(500, 0.0001, id="lighter than anything calibrated"),
        pytest.param(3000, 0.0003, id="between two loads: the heavier one's"),
        pytest.param(20_000, 0.004, id="the heaviest one"),
        pytest.param(20_001, None, id="heavier than anything calibrated"),
    ],
)
def test_the_clients_error_is_that_of_the_next_heavier_calibrated_load(load: float, error: float | None) -> None:
    calibrated = dataclasses.replace(META, client_error=((1000, 0.0001), (20_000, 0.004), (5000, 0.0003)))
    assert calibrated.client_error_at(load) == error
    assert dataclasses.replace(META, client_error=()).client_error_at(load) is None, "never calibrated"
