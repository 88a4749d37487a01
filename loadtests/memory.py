"""How much memory does it take? 1, 8 and 32 users, each with short, medium and long prompts: nine stages.

    locust -f loadtests/memory.py --host http://127.0.0.1:8000 --headless
    enginebench run memory --engine transformers --model smollm2-135m --model qwen2.5-0.5b

Look at the server's peak memory and KV cache by stage: the model alone, the cost of each user and each thousand tokens,
and from which stage on requests wait or are refused. Repeat `--model` to compare models.
"""

from loadtests.harness.scenario import Scenario, tokens, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(stages=users("1,8,32"), prompt_tokens=tokens("128,1024,4096"), output_tokens=tokens("128"))
