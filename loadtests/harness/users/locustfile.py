"""What a scenario's file needs so that `locust -f` can run it."""

from __future__ import annotations

import sys

from locust import LoadTestShape

from loadtests.harness.scenario import Scenario
from loadtests.harness.users import (
    events,
    page,  # noqa: F401  adds its tab to Locust's page
)
from loadtests.harness.users.shape import StageShape
from loadtests.harness.users.user import ModelUser


def locust_classes(
    scenario: Scenario, user: type[ModelUser] = ModelUser
) -> tuple[type[ModelUser], type[LoadTestShape]]:
    """The two classes that Locust looks for in a locustfile: its user and its load shape, for this scenario.

    `user` may be a subclass of `ModelUser` that asks something else.
    """
    if events.scenario is not None:
        sys.exit("one scenario at a time: give Locust a single file with -f.")
    events.scenario = scenario
    user.abstract = True  # else Locust also takes the class that the file itself defines
    return type(user.__name__, (user,), {}), type("Stages", (StageShape,), {})
