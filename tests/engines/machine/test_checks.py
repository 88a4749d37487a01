"""Checks of this machine that can go wrong by chance."""

from __future__ import annotations

import pytest

from engines.machine import checks
from engines.machine.checks import Check, by_outcome, check_build
from engines.machine.cuda import Build

TORCH = Build("torch 2.15.0 with CUDA 13.2 and cuDNN 92600", has_cuda=True)
WITHOUT = Build("torch 2.15.0 without CUDA", has_cuda=False)
FAILS = Build(TORCH.text, has_cuda=True, problem="the driver is too old")


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


@pytest.mark.parametrize(
    ("build", "gpu", "ok", "found"),
    [
        pytest.param(TORCH, True, True, TORCH.text, id="fits"),
        pytest.param(FAILS, True, False, "the driver is too old", id="torch cannot use the GPU"),
        pytest.param(WITHOUT, True, False, WITHOUT.text, id="a build for the CPU"),
        pytest.param(None, True, False, "not installed", id="nothing there"),
        pytest.param(TORCH, False, True, TORCH.text, id="no GPU"),
        pytest.param(None, False, True, "not installed", id="nothing there, nothing missing"),
        pytest.param(WITHOUT, False, True, WITHOUT.text, id="a CPU build, no GPU"),
    ],
)
def test_what_an_engine_needs(build: Build | None, gpu: bool, ok: bool, found: str) -> None:
    answer = check_build("x", build, gpu, "Install another torch.")
    assert (answer.ok, answer.found, answer.remedy) == (ok, found, "Install another torch.")
    assert answer.needed == (gpu or (build is not None and build.has_cuda))


def test_engines_whose_gpu_code_is_judged_alike_share_a_line() -> None:
    checks = [
        Check("Python", True, "3.11"),
        Check("GPU code of a", True, "torch 2.9.1"),
        Check("GPU code of b", False, "not installed", "Install it."),
        Check("GPU code of c", True, "torch 2.9.1"),
    ]
    assert by_outcome(checks) == [checks[0], Check("GPU code of 2 engines", True, "a, c: torch 2.9.1"), checks[2]]
