"""Is it still right under load? 200 questions with exact answers, first by one user, then by 16 at the same time.

    locust -f loadtests/graded.py --host http://127.0.0.1:8000 --headless
    enginebench run graded --engine transformers --engine transformers-batching

The report has the share of correct answers at each load, and tests whether the same questions are answered worse under
load than for a single user (docs/answers.md).
"""

from loadtests.harness.scenario import Scenario, tokens, users
from loadtests.harness.users.user import ModelUser
from loadtests.harness.workload.graded_questions import GRADED


class User(ModelUser):
    scenario = Scenario(
        stages=users("1,16"),
        stage_requests=200,
        warm_up=(0.0, False),
        dataset=GRADED,
        output_tokens=tokens("32"),
        ignore_eos="no",
    )
