"""How would the server have handled recorded traffic? The arrivals and lengths of a trace are replayed.

    locust -f loadtests/replay.py --host http://127.0.0.1:8000 --headless --trace AzureLLMInferenceTrace_code.csv
    enginebench run replay --engine transformers --trace runs/20261121-100542-server-k3vq --trace-as speed=2

Published traces (Mooncake, Azure, BurstGPT, ShareGPT), recorded agents (Weka's sessions, OpenTelemetry's spans), the
folder of an earlier run, and any CSV, JSONL or Parquet file whose columns you name, as in `--trace-as
time=ts,prompt=tokens_in,output=tokens_out`. `span=600-1200` plays ten minutes of it, `share=0.1` a tenth of the
requests. Prompts are random words of the recorded length, unless the trace has texts; they share prefixes where the
trace says that the recorded ones did. A call of an agent is sent when those that it needs have ended.
"""

from loadtests.harness.scenario import Scenario
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(needs_trace=True, warm_up=(0.0, False))
