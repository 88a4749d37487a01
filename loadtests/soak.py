"""Does it last? Hours at one load: drift, leaks, heat, and what happens only once in a hundred thousand requests.

    locust -f loadtests/soak.py --host http://127.0.0.1:8000 --headless --stage-seconds 28800
    enginebench run soak --engine mistralrs --stages 16

The report says of throughput, TTFT, TPOT and requests in flight whether they stayed level, how the server's memory went
from the first tenth of the time to the last, and which requests failed. Choose a load that the server bears easily:
what a soak looks for is slow, and an overload would hide it.
"""

from loadtests.harness.scenario import Scenario, users
from loadtests.harness.users.locustfile import locust_classes

SCENARIO = Scenario(load=users("16"), stage_seconds=4 * 3600, warm_up=(300.0, False))

User, Stages = locust_classes(SCENARIO)
