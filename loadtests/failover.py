"""What do users feel when a server dies, restarts or is replaced? A command is run under a steady rate of arrivals.

    locust -f loadtests/failover.py --host http://127.0.0.1:8000 --headless --at 60 --command 'docker restart replica-1'
    enginebench run failover --engine transformers

By default the engine that `enginebench run` has started is killed, and its server starts it again. The report says how
many requests failed, how long after the command the first answer came to a request sent since, beside the time of the
first start, and when latency was back where 95 % of the requests had it before.
"""

from loadtests.harness.scenario import Scenario, rates
from loadtests.harness.users.locustfile import locust_classes

SCENARIO = Scenario(rate=rates("4"), stage_seconds=180, warm_up=(10.0, False), at=60, command="kill -KILL {engine}")

User, Stages = locust_classes(SCENARIO)
