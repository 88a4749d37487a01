"""A load has a value, a unit and a label, and comes back from JSON."""

import msgspec
import pytest

from enginebench.records.load import Load, Rate, Users


@pytest.mark.parametrize(
    ("load", "value", "unit", "label"),
    [
        pytest.param(Users(40), 40.0, "users", "40 users", id="a closed loop"),
        pytest.param(Users(1), 1.0, "users", "1 user", id="one user is no plural"),
        pytest.param(Rate(8.0), 8.0, "req/s", "8 req/s", id="an open loop"),
        pytest.param(Rate(0.25, "gamma:cv=2"), 0.25, "req/s", "0.25 req/s", id="less than one a second"),
    ],
)
def test_loads(load: Load, value: float, unit: str, label: str) -> None:
    assert (load.value, load.unit, load.label) == (value, unit, label)
    assert msgspec.json.decode(msgspec.json.encode(load), type=Load) == load
