"""What is the highest load that meets the objectives? A search, certified from both sides.

    locust -f loadtests/capacity.py --host http://127.0.0.1:8000 --headless --slo ttft_p95=0.5,failures=0.01
    enginebench run capacity http://127.0.0.1:8000 --slo ttft_p95=500ms,tpot_p95=40ms
    enginebench run capacity --engine transformers --by rate

Short probes locate the capacity; longer probes below and above it together certify a bracket around it. Each probe is a
stage of the report. A search ends when the bracket is within 20 % of its middle, or when --search-seconds are up: the
report then says what was certified and what more time would give. Exit code: 0 if the precision was certified, 3 if it
was not, 2 for a usage error.
"""

from loadtests.harness.scenario import Scenario, slo
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(by="users", slo=slo("ttft_p95=0.5,failures=0.01"))
