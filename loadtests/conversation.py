"""What do chat histories cost? Conversations of 2 to 12 turns, each of which sends the whole history.

    locust -f loadtests/conversation.py --host http://127.0.0.1:8000 --headless
    enginebench run conversation --engine transformers --engine mistralrs --turns 8

Users read an answer before they continue, and the real answers are part of the next prompt. Look at how TTFT grows from
turn to turn (`turn` in the records): with an effective prefix cache, it hardly grows.
"""

from loadtests.harness.scenario import Scenario, length, pause, tokens, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(
        stages=users("10,20,40"),
        stage_seconds=180,
        prompt_tokens=tokens("uniform:64-256"),
        output_tokens=tokens("uniform:64-256"),
        turns=length("uniform:2-12"),
        turn_tokens=length("uniform:16-128"),
        think_time=pause("lognormal:4,0.7"),
    )
