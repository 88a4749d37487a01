"""What is the highest load that meets the service-level objectives? A search, certified from both sides.

    locust -f loadtests/capacity.py --host http://127.0.0.1:8000 --headless --slo ttft_p95=0.5,failures=0.01
    enginebench run capacity --engine transformers --slo ttft_p95=0.5,tpot_p95=0.04 --by users

Short probes locate the capacity; longer ones slightly below and above it run until a sequential test has decided each.
Each probe is a stage of the report. Near capacity, latencies are strongly correlated, and thousands of requests carry
the information of dozens, so a search takes tens of thousands of requests. What --search-seconds does not suffice for
is reported as undecided. Exit code: 0 found, 1 not found, 2 a usage error.
"""

from loadtests.harness.scenario import Scenario, slo
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(by="rate", slo=slo("ttft_p95=0.5,failures=0.01"))
