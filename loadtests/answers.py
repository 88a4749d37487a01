"""Does load change the answers? 64 questions with greedy sampling, first by one user, then by 16 at the same time.

    locust -f loadtests/answers.py --host http://127.0.0.1:8000 --headless
    enginebench run answers --engine candle --engine burn -o dtype=float32

If an engine with greedy sampling answers a question in two ways, the cause is the requests that it computed together.
The report counts the questions with different answers under load, and, for several engines, the questions with equal
answers (docs/answers.md).
"""

from loadtests.harness.scenario import Scenario, tokens, users
from loadtests.harness.users.user import ModelUser
from loadtests.harness.workload.datasets import QUESTIONS


class User(ModelUser):
    scenario = Scenario(
        stages=users("1,16"),
        stage_requests=128,
        warm_up=(0.0, False),
        dataset=str(QUESTIONS),
        output_tokens=tokens("48"),
        ignore_eos="no",
        quality=True,
    )
