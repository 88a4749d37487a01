"""Is performance stable? Five minutes each with 32 and with 64 users: long enough to show drift, heat and leaks.

    locust -f loadtests/sustained.py --host http://127.0.0.1:8000 --headless
    enginebench run sustained --engine transformers --engine mistralrs

Check whether throughput and TTFT stay constant from the first minute to the last, and look at the server's memory, GPU
utilisation, power and temperature. A report calls a stage steady only if these series were tested.
"""

from loadtests.harness.scenario import Scenario, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(stages=users("32,64"), stage_seconds=300)
