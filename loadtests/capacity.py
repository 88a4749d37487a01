"""How much can it take? The highest load that keeps the service-level objectives, certified from both sides.

    locust -f loadtests/capacity.py --host http://127.0.0.1:8000 --headless --slo ttft_p95=0.5,failures=0.01
    enginebench run capacity --engine transformers --slo ttft_p95=0.5,tpot_p95=0.04 --by users

Short probes locate capacity; fresh ones a little below and above it are applied until a test that may be looked at any
time has decided them. Each probe is a stage of the report. Near capacity requests wait alike, and thousands of them are
worth dozens, so a search takes tens of thousands of requests: give it the time (--search-seconds), or read what is
undecided as undecided. Exit code: 0 found, 1 not found, 2 a usage error.
"""

from loadtests.harness.scenario import Scenario, slo
from loadtests.harness.users.locustfile import locust_classes

SCENARIO = Scenario(by="rate", slo=slo("ttft_p95=0.5,failures=0.01"))

User, Stages = locust_classes(SCENARIO)
