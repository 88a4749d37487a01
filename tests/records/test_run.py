"""What `meta.json` knows of the client's calibration."""

import dataclasses

import pytest

from tests.support.records import META


@pytest.mark.parametrize(
    ("chunks", "delay", "error"),
    [
        pytest.param(500, 0.0, 0.0001, id="lighter than anything calibrated"),
        pytest.param(3000, 0.0, 0.0003, id="between two loads: the heavier one's"),
        pytest.param(20_000, 0.0, 0.004, id="the heaviest one"),
        pytest.param(20_001, 0.0, None, id="heavier than anything calibrated"),
        pytest.param(500, 0.1, 0.002, id="a busy machine: calibrated beside a load"),
        pytest.param(6000, 0.1, None, id="a busy machine under a load that was calibrated only on a quiet one"),
        pytest.param(500, 0.5, None, id="busier than anything calibrated"),
    ],
)
def test_the_clients_error_is_that_of_the_gentlest_conditions_at_least_as_hard(
    chunks: float, delay: float, error: float | None
) -> None:
    quiet = ((1000.0, 0.0, 0.0001), (20_000.0, 0.0, 0.004), (5000.0, 0.0, 0.0003))
    calibrated = dataclasses.replace(META, client_error=(*quiet, (5000.0, 0.3, 0.002)))
    assert calibrated.client_error_at(chunks, delay) == error
    assert dataclasses.replace(META, client_error=()).client_error_at(chunks) is None, "never calibrated"
