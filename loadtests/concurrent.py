"""Ever more users at once: 10, then 20, up to 100, each of whom asks again as soon as the answer is there.

    locust -f loadtests/concurrent.py --host http://127.0.0.1:8000
    locust -f loadtests/concurrent.py --host http://127.0.0.1:8000 --headless --stages 10,20,40 --stage-seconds 60

Look for the load from which on throughput no longer grows while latency does: there the server is full. The first
command opens Locust's page at http://localhost:8089, the second runs at once. Each run leaves a folder under `runs/`,
of which `enginebench report` makes the report. All settings: docs/running-load-tests.md.
"""

from loadtests.harness.scenario import Scenario, users
from loadtests.harness.users.locustfile import locust_classes

SCENARIO = Scenario(load=users("10-100:10"))

User, Stages = locust_classes(SCENARIO)
