"""How many coding agents can one replica serve? Sessions of up to 200 turns, with prompts from 5 000 to 131 000 tokens.

    locust -f loadtests/agents.py --host http://127.0.0.1:8000 --headless
    enginebench run agents --engine transformers --stages 1,2,4

Each agent sends its whole history, waits for the answer (median 150 tokens, p95 2 000), runs a tool, and continues.
Lengths are scaled down for a server with a shorter context. Judge the stages by limits such as TTFT p95 of 10 s at
20 tokens/s (ttft_p95=10, tpot_p95=0.05) or of 3 s at 60 tokens/s (ttft_p95=3, tpot_p95=0.0167).
"""

from loadtests.harness.scenario import Scenario, length, pause, tokens, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(
        stages=users("1,2,4,8,16,32"),
        stage_seconds=300,
        prompt_tokens=tokens("5000"),
        turn_tokens=length("lognormal:60,1.1"),
        output_tokens=tokens("lognormal:150,1.575,8000"),
        turns=length("lognormal:31,0.8,200"),  # so that the mean prompt has 27 000 tokens
        think_time=pause("lognormal:2,1,60"),
        for_context=131_072,
    )
