"""How fast is it for one user? TTFT by prompt length: nine stages of 100 requests, each after ten warm-up requests.

    locust -f loadtests/single.py --host http://127.0.0.1:8000 --headless
    enginebench run single --engine transformers --output-tokens 64

With answers of one token, TTFT against prompt length is the cost of prefill. `--output-tokens 64` adds the time per
output token. Prompts go to the text-completion API, because a chat template would make the short ones longer.
"""

from loadtests.harness.scenario import Scenario, tokens, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(
        stages=users("1"),
        stage_requests=100,
        warm_up=(0.1, True),
        prompt_tokens=tokens("10,50-400:50"),
        output_tokens=tokens("1"),
        endpoint="completions",
    )
