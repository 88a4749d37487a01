"""How long does a server take until its first answer? One user asks ten times for a token.

    locust -f loadtests/cold_start.py --host http://127.0.0.1:8000 --headless        # the first answer alone
    enginebench run cold_start --engine transformers --engine candle --repeat 5
    enginebench run cold_start http://127.0.0.1:8000 --restart 'vllm serve Qwen/Qwen3-0.6B' --repeat 5

Every run starts the server anew. The report has the phases of the start (docs/cold-start.md).
"""

from loadtests.harness.scenario import Scenario, pause, tokens, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(
        stages=users("1"),
        stage_requests=10,
        think_time=pause("0.3"),
        warm_up=(0.0, False),
        prompt_tokens=tokens("64"),
        output_tokens=tokens("1"),
    )
