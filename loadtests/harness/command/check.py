"""Check a scenario with the given settings, in a separate process because its file imports Locust.

python -m loadtests.harness.command.check loadtests/spike.py '{"stage_seconds": "5"}'
"""

from __future__ import annotations

import json
import runpy
import sys

from loadtests.harness.scenario import Scenario, read
from settings_schema import from_environment


def main(path: str, given: str) -> None:
    """Exit code 2 and a sentence where nothing would be measured."""
    scenario = runpy.run_path(path).get("SCENARIO") or Scenario()
    try:
        read(scenario, from_environment(Scenario) | json.loads(given)).plan()
    except ValueError as error:
        print(error)
        sys.exit(2)


if __name__ == "__main__":
    main(*sys.argv[1:])
