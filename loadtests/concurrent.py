"""Ever more people at once: 10, then 20, up to 100 users, each asking again as soon as it has its answer.

    locust -f loadtests/concurrent.py --host http://127.0.0.1:8000
    locust -f loadtests/concurrent.py --host http://127.0.0.1:8000 --headless --steps 10,20,40 --stage-seconds 60

The first opens Locust's page at http://localhost:8089, the second runs at once. Each run leaves a folder under `runs/`,
of which `enginebench report` makes the report. All settings: docs/running-load-tests.md.
"""

from loadtests.harness.users.standard_name import locustfile_name

__name__ = locustfile_name(__name__)

from loadtests.harness.users.shapes import Stages
from loadtests.harness.users.user import ModelUser


class ConcurrentUser(ModelUser):
    pass


class Climb(Stages):
    pass
