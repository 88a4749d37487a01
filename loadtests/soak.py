"""Is it stable for hours at one load? Finds drift, leaks, heat, and rare failures.

    locust -f loadtests/soak.py --host http://127.0.0.1:8000 --headless --stage-seconds 28800
    enginebench run soak --engine mistralrs --stages 16

The report tests throughput, TTFT, TPOT and requests in flight for trends, compares the server's memory in the first and
last tenth of the time, and lists failures. Choose a load well below saturation: overload hides slow drift.
"""

from loadtests.harness.scenario import Scenario, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(stages=users("16"), stage_seconds=4 * 3600, warm_up=(300.0, False))
