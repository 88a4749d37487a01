"""How does a server handle different requests at the same time? Three chat users for each user with long documents.

    locust -f loadtests/mixed.py --host http://127.0.0.1:8000 --headless
    enginebench run mixed --engine transformers --stages 20,40

The report judges each class by its own objectives (`slo=`). To see what long prompts do to chat, run again with the
class chat only and 15 users: if their prefill stalls other requests, the TPOT of chat is higher in the mix.
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
    )
