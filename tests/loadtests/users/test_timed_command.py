"""A command that is run while the load goes on. Whole runs: tests/loadtests/scenarios/test_timed_commands.py."""

import pytest

from loadtests.harness.run.options import ENGINE_PID
from loadtests.harness.users.timed_command import complete


def test_the_engines_process_is_filled_in_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_PID, "17")
    assert complete("kill -KILL {engine}") == "kill -KILL 17"
    monkeypatch.delenv(ENGINE_PID)
    assert complete("docker restart server") == "docker restart server"
    with pytest.raises(ValueError, match="give a --command of your own"):
        complete("kill -KILL {engine}")
