"""Do different requests disturb one another? Chat and long documents at once, and then each of them alone.

    locust -f loadtests/mixed.py --host http://127.0.0.1:8000 --headless
    enginebench run mixed --engine transformers --stages 20,40

Alone, a class has as many users as in the mix. Compare its latencies there and here: a long prompt's prefill that
stalls everybody's tokens shows as chat's TPOT. Each class may have objectives of its own (`slo=`).
"""

from loadtests.harness.scenario import Scenario, request_classes, users
from loadtests.harness.users.locustfile import locust_classes

SCENARIO = Scenario(
    load=users("20"),
    stage_seconds=60,
    classes=request_classes(
        "chat: weight=3 prompt=lognormal:200,0.6 output=uniform:64-192 slo=ttft_p95=0.5,tpot_p95=0.05; "
        "documents: weight=1 prompt=uniform:2000-4000 output=uniform:32-96 slo=ttft_p95=5"
    ),
    isolate=True,
)

User, Stages = locust_classes(SCENARIO)
