"""The scenario of a run and its settings, checked before anything is started."""

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
from loadtests.harness.recording.otel import check_installed
from loadtests.harness.scenario import Scenario, read
from loadtests.harness.settings.run_settings import RunSettings

SET_FOR_EACH_RUN = ("label", "run_id", "runs")


@dataclass(frozen=True, slots=True)
class Job:
    """A scenario and its settings: `texts` has the settings' values by name, `locust` Locust's own options.

    `planned` is `None` if the scenario's file fails, which Locust reports. `variables` are for Locust's environment.
    """

    scenario: Path
    texts: Mapping[str, str]
    settings: RunSettings
    planned: Planned | None
    processes: int = 1
    locust: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(scenario: Path, texts: Mapping[str, str], processes: int, locust: Sequence[str]) -> Job:
        """Raise `UserMistake` for a value that this scenario does not take, and for a setting without effect."""
        for_scenario = declared_in(Scenario, texts)
        read(Scenario(), from_environment(Scenario) | for_scenario)
        settings = read(RunSettings(), from_environment(RunSettings) | declared_in(RunSettings, texts))
        if settings.opentelemetry:
            check_installed()
        check = [*PYTHON, "-m", "loadtests.harness.command.check", str(scenario), json.dumps(for_scenario)]
        done = subprocess.run(check, capture_output=True, text=True)
        if done.returncode == 2:  # any other error is in the scenario's file, and Locust reports it
            raise UserMistake(done.stdout.strip())
        planned = None if done.returncode else msgspec.json.decode(done.stdout.splitlines()[-1], type=Planned)
        return Job(scenario, texts, settings, planned, processes, tuple(locust))

    @property
    def words(self) -> list[str]:
        """Return Locust's flags, without secrets: other users of this machine can read a command line."""
        words = []
        for setting in (*settings_of(Scenario), *settings_of(RunSettings)):
            text = self.texts.get(setting.name)
            if text is None or setting.secret or setting.name in SET_FOR_EACH_RUN:
                continue
            if not setting.is_switch:
                words.append(f"{setting.flag}={text}")
            elif setting.parse(text):
                words.append(setting.flag)
        return words


def declared_in(declaration: type[Any], texts: Mapping[str, str]) -> dict[str, str]:
    names = {setting.name for setting in settings_of(declaration)}
    return {name: text for name, text in texts.items() if name in names}
