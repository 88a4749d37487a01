"""What happens at a given request rate? An open loop: requests arrive on schedule, however long answers take.

    locust -f loadtests/rate.py --host http://127.0.0.1:8000 --headless --rate 2,4,8
    enginebench run rate --engine transformers --rate 1-20:1 --arrivals gamma:cv=2

Users of a closed loop wait for a slow server, and so send it less; real traffic does not. Above capacity, requests in
flight grow for as long as the stage lasts. Latency counts from when a request was due, so that requests which a slow
server held up are not left out of it (coordinated omission).
"""

from loadtests.harness.scenario import Scenario, rates
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(rate=rates("1,2,4,8"), stage_seconds=60)
