"""Findings merged for reading: by stage, and by engine where many have the same kind."""

from __future__ import annotations

from pathlib import Path

from enginebench.analysis.data.load import load_run
from enginebench.analysis.summary.remarks import remarks
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.view import Finding, StageKey
from tests.support.analysis.synthetic import Engine, simulate


def late(engine: str, *users: int, kind: str = "client_late") -> list[Finding]:
    return [
        Finding(kind, "warn", f"{engine} {n} ms", "wait", StageKey(index, f"{n} users"), engine)
        for index, n in enumerate(users)
    ]


def test_what_many_engines_have_is_said_once_and_names_them_all() -> None:
    (said,) = remarks([*late("a", 2, 8), *late("b", 8), *late("c", 2, 8)])
    assert said.where == "a and c, 2 and 8 users; b, 8 users"
    assert said.evidence == "a 8 ms (a at 8 users)"
    assert [(other.label, other.evidence) for other in said.others] == [("b", "b 8 ms"), ("c", "c 8 ms (at 8 users)")]


def test_what_concerns_whole_runs_names_the_engine_and_how_many() -> None:
    findings = [Finding("not_calibrated", "note", "unknown", "calibrate", None, "a") for _ in range(3)]
    (said,) = remarks(findings)
    assert said.where == "a (3 runs)"


def test_what_only_some_runs_have_is_said_to_be_of_those() -> None:
    """Two runs of `a` are late at 8 users, and one of them at 2 users, of three runs."""
    (said,) = remarks([*late("a", 2, 8), *late("a", 2, 8)[1:]], ["a", "b", "a", "a"])
    assert said.where == "a, 2 and 8 users (2 of 3 runs)"
    assert said.evidence == "a 8 ms (at 8 users in one run)"
    (said,) = remarks([Finding("run_to_run", "warn", "3 runs of a differ", "repeat", None, "a")], ["a"] * 3)
    assert said.where == "a"


def test_two_engines_keep_a_remark_each() -> None:
    assert [(said.where, said.others) for said in remarks([*late("a", 2), *late("b", 2)])] == [
        ("a, 2 users", ()),
        ("b, 2 users", ()),
    ]


def test_how_the_test_was_laid_out_stands_behind_how_it_ran() -> None:
    findings = [*late("a", 2, kind="too_few_samples"), *late("a", 2), Finding("cut_short", "note", "short", "wait")]
    assert [said.kind for said in remarks(findings)] == ["client_late", "too_few_samples", "cut_short"]


def test_people_are_told_once_what_happened_at_several_stages(tmp_path: Path) -> None:
    summary = summarise(load_run(simulate(tmp_path / "run", Engine(slots=1, tpot=0.03), (2, 4, 8), 10.0)))
    few = [remark for remark in remarks(summary.findings) if remark.kind == "too_few_samples"]
    assert few[0].where == "fake, 2, 4 and 8 users"
    repeats = [remark for remark in remarks([*summary.findings, *summary.findings]) if remark.kind == few[0].kind]
    assert repeats[0].where == "fake, 2, 4 and 8 users (2 runs)"
    assert few[0].evidence.endswith("(at 8 users)")
