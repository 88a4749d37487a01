"""Checks of this machine that can go wrong by chance."""

from __future__ import annotations

import pytest

from engines.machine import checks


@pytest.mark.parametrize(
    ("attempts", "stamped"),
    [
        pytest.param([True], True, id="at once"),
        pytest.param([False, False, True], True, id="the kernel enables stamping after the first bytes"),
        pytest.param([False] * checks.STAMP_ATTEMPTS, False, id="never"),
    ],
)
def test_one_byte_without_a_stamp_is_no_answer(
    attempts: list[bool], stamped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = iter(attempts)
    monkeypatch.setattr(checks, "_receives_a_stamp", lambda: next(results))
    check = checks._kernel_stamps()
    assert check.ok is stamped
    assert check.found == ("on loopback" if stamped else "no stamp came")
    assert next(results, None) is None, "no more attempts than needed"


def test_a_load_test_that_does_not_end_is_said_and_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LOAD_TEST_LIMIT", 0.01)
    check = checks._load_test()
    assert not check.ok
    assert check.required
    assert check.found == "none ran: it has not ended after 0 s"
