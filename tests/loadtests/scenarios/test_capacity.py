"""The search for capacity in real time, on a server of known capacity, by two processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import summarise
from tests.support.loadtests.locust_process import ROOT, start
from tests.support.servers.served import served

CAPACITY = ROOT / "loadtests/capacity.py"


@pytest.mark.alone  # how many users it takes must not depend on what else runs
def test_as_many_users_as_the_server_has_places(tmp_path: Path) -> None:
    """Without a queue, the third of three users is rejected while the other two are being served."""
    eager = tmp_path / "eager.py"
    eager.write_text(
        "from loadtests.capacity import User\nfrom loadtests.harness.schedule.search import capacity_search\n"
        "from loadtests.harness.users import user\n"
        "capacity_search.MIN_MET = 400\nuser.PAUSE_AFTER_FAILURE = 0.02\n"
    )
    with served("ttft=0.03", "concurrency=2", arguments=("--queue-size=0",)) as server:
        locust = start(
            server,
            tmp_path,
            *("--by", "users", "--slo", "failures=0.1"),
            *("--prompt-tokens", "8", "--output-tokens", "1", "--search-seconds", "120"),
            scenario=eager,
            processes=2,
        )
        output = locust.wait(260)
    assert "Traceback" not in output, output
    search = locust.meta.search
    assert search is not None
    assert search.state == "found", search
    assert locust.process.returncode == 0
    assert search.met is not None
    assert search.missed is not None
    assert (search.met, search.missed) == (2, 3)
    assert search.estimate is not None
    assert 2 <= search.estimate < 3
    stages = locust.meta.stages
    assert [stage.label.partition(":")[0] for stage in stages] == [f"probe {k + 1}" for k in range(len(stages))]
    assert [probe.stage for probe in search.probes] == list(range(len(stages)))
    records = locust.records
    for probe in search.probes:
        stage = stages[probe.stage]
        assert stage.load.value == probe.load
        counted = [
            one
            for one in records
            if one.stage == probe.stage and stage.steady_start is not None and stage.steady_end is not None
            if stage.steady_start <= one.t_sched < stage.steady_end
        ]
        assert 0 <= len(counted) - probe.requests <= 1500  # some seconds after the last slice that was judged
    assert search.sentence in output
    summary = summarise(load_run(locust.run))
    assert [objective.name for objective in summary.objectives] == ["failures"]
    assert summary.search == search
