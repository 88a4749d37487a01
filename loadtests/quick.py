"""How many users does this server sustain, in one minute? Users double until an objective is missed; then the two loads
around that point are measured for the rest of the minute.

    locust -f loadtests/quick.py --host http://127.0.0.1:8000 --headless
    enginebench quick http://127.0.0.1:8000

`enginebench quick` finds the server automatically and reports the result. For a confirmed capacity, run the scenario
`capacity`.
"""

from loadtests.harness.scenario import Scenario, slo, tokens
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(
        by="growth",
        search_seconds=55,
        slo=slo("ttft_p95=1,tpot_p95=0.1"),
        prompt_tokens=tokens("uniform:48-80"),
        output_tokens=tokens("uniform:24-40"),
    )
