"""How long until a burst is forgotten? A minute at the usual rate, 15 s at ten times as much, then the usual one again.

    locust -f loadtests/spike.py --host http://127.0.0.1:8000 --headless --rate 4x60+40x15+4x105
    enginebench run spike --engine transformers

A profile `RATExSECONDS+…` is one stage whose rate of arrivals changes. The report says how long latency took, from the
end of the burst, to be back where 95 % of the requests had it before, and what it was at worst. What piles up during a
burst is served after it, so expect some time even of a server that could bear the mean of the two rates.
"""

from loadtests.harness.scenario import Scenario, rates
from loadtests.harness.users.locustfile import locust_classes

SCENARIO = Scenario(rate=rates("2x60+20x15+2x105"), stage_seconds=180, warm_up=(10.0, False))

User, Stages = locust_classes(SCENARIO)
