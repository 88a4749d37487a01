"""What is prefix caching worth? Prompts of the same lengths, first all different, then with 1 024 tokens in common.

    locust -f loadtests/shared_prefix.py --host http://127.0.0.1:8000 --headless
    enginebench run shared_prefix --engine mistralrs --shared-prefix-tokens 0,512,1024,2048 --prompt-tokens 2304

Many real prompts start with the same system prompt, tools and examples. The difference in TTFT and throughput between
the two stages is the benefit of the prefix cache; without one, there is no difference.
"""

from loadtests.harness.scenario import Scenario, tokens, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(
        stages=users("16"),
        stage_seconds=60,
        shared_prefix_tokens=(0, 1024),
        prompt_tokens=tokens("uniform:1152-1408"),
        output_tokens=tokens("uniform:32-96"),
    )
