"""What do long prompts cost? One user with prompts from 1 000 to 128 000 tokens, as far as the server's context allows.

    locust -f loadtests/long_context.py --host http://127.0.0.1:8000 --headless
    enginebench run long_context --engine transformers --stage-requests 5

TTFT against prompt length is the cost of prefill: where it grows faster than the prompt, attention dominates. TPOT
shows what a long KV cache costs each further token. Lengths beyond the server's context are left out, with a message.
"""

from loadtests.harness.scenario import Scenario, tokens, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(
        stages=users("1"),
        stage_requests=20,
        warm_up=(1, False),
        prompt_tokens=tokens("1000,4000,8000,16000,32000,64000,128000"),
        output_tokens=tokens("64"),
    )
