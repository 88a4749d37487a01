"""A command that is run while the load goes on. Whole runs: tests/loadtests/scenarios/test_timed_commands.py."""

import pytest

from enginebench.records.load import Users
from enginebench.records.stage import Extent, StagePlan
from enginebench.settings.schema import UserMistake
from loadtests.harness.run.options import ENGINE_PID
from loadtests.harness.users.timed_command import check, parse
from tests.support.records import plan


def test_the_engines_process_is_filled_in_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_PID, "17")
    assert parse("kill -KILL {engine}") == (30.0, "kill -KILL 17")
    monkeypatch.delenv(ENGINE_PID)
    with pytest.raises(ValueError, match="give a --command of your own"):
        parse("kill -KILL {engine}")


@pytest.mark.parametrize(
    ("text", "at", "command"),
    [
        ("docker restart server", 30.0, "docker restart server"),
        ("90s docker restart server", 90.0, "docker restart server"),
        ("2m  echo a b", 120.0, "echo a b"),
        ("0 true", 0.0, "true"),
    ],
)
def test_a_command_has_its_time_before_it_or_none(text: str, at: float, command: str) -> None:
    assert parse(text) == (at, command)


def test_a_command_after_the_first_stage_is_refused() -> None:
    check("9s true", plan(seconds=10.0))
    check("9s true", StagePlan(Users(2), Extent(2.0), Extent(100, "requests")))
    with pytest.raises(UserMistake, match=r"10 s into the first stage, which lasts 10 s: .* '3s …'"):
        check("10s true", plan(seconds=10.0))


@pytest.mark.parametrize("text", ["", "60s", "-5s true", "inf true"])
def test_what_is_no_command_gets_a_sentence(text: str) -> None:
    with pytest.raises(UserMistake, match="--command is a shell command, optionally after a time, not"):
        parse(text)
