"""The check of a scenario with its settings, in a separate process because the file may import Locust.

python -m loadtests.harness.command.check loadtests/spike.py '{"stage_seconds": "5"}'
"""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import asdict, dataclass
from types import ModuleType

from enginebench.settings.schema import from_environment
from loadtests.harness.client.dialects.endpoints import Endpoint
from loadtests.harness.run.duration import Duration, duration_of
from loadtests.harness.scenario import Scenario, read
from loadtests.harness.without_effect import check_effects


@dataclass(frozen=True, slots=True)
class Planned:
    """The facts of a run that are known before it starts."""

    endpoint: Endpoint
    duration: Duration


class NoLocust(ModuleType):
    """Stand in for `loadtests.harness.users.user`: only a user's scenario is needed here, and importing Locust takes a
    second."""

    class ModelUser:
        pass


def main(path: str, settings: str) -> None:
    """Print a `Planned`, or a sentence with exit code 2 if nothing would be measured."""
    name = "loadtests.harness.users.user"
    sys.modules[name] = NoLocust(name)
    values = (getattr(value, "scenario", None) for value in runpy.run_path(path).values())
    defaults = next((value for value in values if isinstance(value, Scenario)), Scenario())
    try:
        asked = from_environment(Scenario) | json.loads(settings)
        scenario = read(defaults, asked)
        check_effects(defaults, scenario, asked)
        planned = Planned(scenario.endpoint, duration_of(scenario))
    except ValueError as error:
        print(error)
        sys.exit(2)
    print(json.dumps(asdict(planned)))


if __name__ == "__main__":
    main(*sys.argv[1:])
