"""How long does a burst affect users? A minute at the normal rate, 15 s at ten times as much, then the normal rate.

    locust -f loadtests/spike.py --host http://127.0.0.1:8000 --headless --rate 4x60+40x15+4x105
    enginebench run spike --engine transformers

A profile `RATExSECONDS+…` is one stage with a changing rate; a part such as `burst50` is 50 requests at once. The
report says how long after the burst latency was back at its earlier 95th percentile, and what it was at worst. Requests
that queue during the burst are served after it, so expect some delay even if the server could handle the mean rate.
"""

from loadtests.harness.scenario import Scenario, rates
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(rate=rates("2x60+20x15+2x105"), stage_seconds=180, warm_up=(10.0, False))
