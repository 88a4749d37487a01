"""The scenario of a run and what was given for it, checked before anything is started."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from enginebench.settings.schema import UserMistake, from_environment, settings_of
from loadtests.harness.command.check import Planned
from loadtests.harness.command.server_process import PYTHON
from loadtests.harness.scenario import Scenario, read
from loadtests.harness.settings.run_settings import RunSettings

SET_FOR_EACH_RUN = ("label", "run_id", "runs")


@dataclass(frozen=True, slots=True)
class Job:
    """A scenario and its settings: `given` are texts by the settings' names, `locust` options of Locust.

    `planned` is `None` where the scenario's own file fails: Locust says why. `variables` are of Locust's environment.
    """

    scenario: Path
    given: Mapping[str, str]
    settings: RunSettings
    planned: Planned | None
    processes: int = 1
    locust: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(scenario: Path, given: Mapping[str, str], processes: int, locust: Sequence[str]) -> Job:
        """Raises `UserMistake` for what no scenario takes, or not this one, and for a setting without effect."""
        asked = known(Scenario, given)
        read(Scenario(), from_environment(Scenario) | asked)
        settings = read(RunSettings(), from_environment(RunSettings) | known(RunSettings, given))
        checked = [*PYTHON, "-m", "loadtests.harness.command.check", str(scenario), json.dumps(asked)]
        done = subprocess.run(checked, capture_output=True, text=True)
        if done.returncode == 2:  # other errors are in the file, and Locust reports them
            raise UserMistake(done.stdout.strip())
        planned = None if done.returncode else msgspec.json.decode(done.stdout.splitlines()[-1], type=Planned)
        return Job(scenario, given, settings, planned, processes, tuple(locust))

    @property
    def words(self) -> list[str]:
        """The settings on Locust's command line, without secrets: others on this machine can read a command line."""
        declared = (*settings_of(Scenario), *settings_of(RunSettings))
        passed = [one for one in declared if one.name in self.given and not one.secret]
        return [
            one.flag if one.is_switch else f"{one.flag}={self.given[one.name]}"
            for one in passed
            if one.name not in SET_FOR_EACH_RUN and not (one.is_switch and not one.parse(self.given[one.name]))
        ]


def known(declared: type[Any], given: Mapping[str, str]) -> dict[str, str]:
    names = {one.name for one in settings_of(declared)}
    return {name: text for name, text in given.items() if name in names}
