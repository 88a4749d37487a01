"""Long answers are measured under the load they were asked for: the next stage bends neither TPOT nor throughput."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from tests.support.analysis.rows import number, rows_of
from tests.support.loadtests.locust_process import start
from tests.support.servers.served import served

pytestmark = pytest.mark.alone

FIRST, EACH, FURTHER = 0.05, 0.003, 0.0005  # seconds to the first token, per token, and more for each other request


def test_answers_of_hundreds_of_tokens_are_measured_without_bias(tmp_path: Path) -> None:
    """An engine whose tokens take longer the more requests run: 4 users, then 16, answers as long as the window."""
    with served(f"ttft={FIRST}", f"tpot={EACH}", f"tpot_per_running={FURTHER}") as server:
        locust = start(
            server, tmp_path, "--stages", "4,16", "--stage-seconds", "2", "--output-tokens", "uniform:120-240"
        ).finish()
    done = CliRunner().invoke(app, ["report", str(locust.run), "--json", "--allow-invalid"])
    rows = rows_of(done.stdout)
    for users in (4, 16):
        tpot = EACH + FURTHER * (users - 1)
        mean = 180 * tpot + FIRST
        assert number(rows, "tpot", "p50", f"{users} users") == pytest.approx(tpot, rel=0.03)
        throughput = number(rows, "throughput", "value", f"{users} users")
        assert throughput == pytest.approx(users * 180 / mean, rel=0.15)  # few answers: lengths vary
