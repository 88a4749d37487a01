"""How do latency and throughput change with the number of users? 1 user, then 10, 20, up to 100, in a closed loop.

    locust -f loadtests/concurrent.py --host http://127.0.0.1:8000
    locust -f loadtests/concurrent.py --host http://127.0.0.1:8000 --headless --stages 10,20,40 --stage-seconds 60

Each user sends the next request when the answer is complete. Other loads are compared with one user: the scaling of 100
users is their throughput divided by 100 times that of one. The server is saturated from the load at which throughput
stops growing while latency keeps growing. The first command opens Locust's page at http://localhost:8089, the second
runs at once. Each run leaves a folder in `runs/` for `enginebench report`. All settings: docs/running-load-tests.md.
"""

from loadtests.harness.scenario import Scenario, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(stages=users("1,10-100:10"))
