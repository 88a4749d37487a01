"""Does load change the answers? 64 questions with greedy sampling, first by one user, then by 16 at the same time.

    locust -f loadtests/answers.py --host http://127.0.0.1:8000 --headless
    enginebench run answers --engine candle --engine burn -o dtype=float32

A greedy engine has no other reason for a second answer to a question than what else it was computing. The report says
how many questions got another answer under load, and of several engines how many they answer alike (docs/answers.md).
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
        keep_answers=True,
        quality=True,
    )
