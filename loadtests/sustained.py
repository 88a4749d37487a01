"""Does it hold? Five minutes each with 32 and with 64 users: long enough for drift, heat and leaks to show.

    locust -f loadtests/sustained.py --host http://127.0.0.1:8000 --headless
    enginebench run sustained --engine transformers --engine mistralrs

Look at whether throughput and TTFT stay level from the first minute to the last, and at the server's memory, GPU
utilisation, power and temperature beside them. A report calls a stage steady only if these series were tested.
"""

from loadtests.harness.scenario import Scenario, users
from loadtests.harness.users.locustfile import locust_classes

SCENARIO = Scenario(load=users("32,64"), stage_seconds=300)

User, Stages = locust_classes(SCENARIO)
