"""What do users see when a server dies, restarts or is replaced? A command is run during a constant request rate.

    locust -f loadtests/failover.py --host http://127.0.0.1:8000 --headless --command '60s docker restart replica-1'
    enginebench run failover --engine transformers

By default the command kills the engine that `enginebench run` started, and the server restarts the engine. The report
says how many requests failed, how long it took until a new request was answered (next to the time of the first start),
and when latency was back at its earlier 95th percentile.
"""

from loadtests.harness.scenario import Scenario, rates
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(rate=rates("4"), stage_seconds=180, warm_up=(10.0, False), command="60s kill -KILL {engine}")
