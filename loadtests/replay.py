"""How would the server have handled recorded traffic? The arrivals and lengths of a trace are replayed.

    locust -f loadtests/replay.py --host http://127.0.0.1:8000 --headless --trace AzureLLMInferenceTrace_code.csv
    enginebench run replay --engine transformers --trace runs/20261121-100542-server-k3vq

Published traces (Mooncake, Azure, BurstGPT, ShareGPT), or the folder of an earlier run; docs/scenarios.md shows how to
make a trace of another log, or of a part of one. Prompts are random words of the recorded length, unless the trace has
texts; they share prefixes if the trace says that the recorded ones did.
"""

from loadtests.harness.scenario import Scenario
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(needs_trace=True, warm_up=(0.0, False))
