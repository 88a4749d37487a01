"""This project's own load test, its requests named so that the scripted server's truth of each can be found.

Everything else is what `enginebench run concurrent` does: Locust, the measuring client, records on disk, telemetry. The
names go to the file named in ENGINEBENCH_NAMES, in the order of the records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from locust import events

from loadtests.harness.client.client import Call
from loadtests.harness.users.shapes import Stages
from loadtests.harness.users.user import ModelUser
from records.request import Observation

names: list[str] = []


class NamedUser(ModelUser):
    def calls(self, number: int) -> Iterator[Call]:
        for count, call in enumerate(super().calls(number)):
            self._name = f"user-{number}-{count}"
            yield replace(call, body=json.dumps(json.loads(call.body) | {"user": self._name}).encode())

    def _observed(self, observation: Observation) -> None:
        super()._observed(observation)
        names.append(self._name)


class Climb(Stages):
    pass


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _write(**_: Any) -> None:
    Path(os.environ["ENGINEBENCH_NAMES"]).write_text("".join(f"{name}\n" for name in names))
