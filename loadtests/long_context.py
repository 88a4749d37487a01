"""What does context cost? One user with prompts of 1 000 tokens to 128 000, or as far as the server's context goes.

    locust -f loadtests/long_context.py --host http://127.0.0.1:8000 --headless
    enginebench run long_context --engine transformers --stage-requests 5

TTFT against prompt length is prefill: where it grows faster than the prompt, attention has begun to dominate. TPOT
tells what a full KV cache costs each further token. Lengths beyond the server's context are left out, with a sentence.
"""

from loadtests.harness.scenario import Scenario, tokens, users
from loadtests.harness.users.locustfile import locust_classes

SCENARIO = Scenario(
    load=users("1"),
    stage_requests=20,
    warm_up=(1, False),
    prompt_tokens=tokens("1000,4000,8000,16000,32000,64000,128000"),
    output_tokens=tokens("64"),
)

User, Stages = locust_classes(SCENARIO)
