"""Do different requests slow each other down? Chat and long documents together, then each of them alone.

    locust -f loadtests/mixed.py --host http://127.0.0.1:8000 --headless
    enginebench run mixed --engine transformers --stages 20,40

Alone, a class has as many users as in the mix. Compare its latencies: if the prefill of long prompts stalls other
requests, the TPOT of chat is higher in the mix. Each class may have its own objectives (`slo=`).
"""

from loadtests.harness.scenario import Scenario, request_classes, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(
        stages=users("20"),
        stage_seconds=60,
        classes=request_classes(
            "chat: weight=3 prompt=lognormal:200,0.6 output=uniform:64-192 slo=ttft_p95=0.5,tpot_p95=0.05; "
            "documents: weight=1 prompt=uniform:2000-4000 output=uniform:32-96 slo=ttft_p95=5"
        ),
        isolate=True,
    )
