"""What `enginebench watch` shows of a server and of a run, and that it leaves the terminal as it was."""

from __future__ import annotations

import json
import math
import os
import pty
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console

from analysis.watch.moment import Moment, Percentiles
from analysis.watch.run import RunFolder
from analysis.watch.screen import WIDTH, screen, sparkline
from analysis.watch.server import ServerPage, UnreachableServer, quantile
from loadtests.harness.run.host import free_port
from tests.support.loadtests.load_exporter import GOOD, MEANS, RATE, TOKENS, USERS, ScriptedRun, exported

COMMAND = [str(Path(sys.executable).parent / "enginebench"), "watch"]
SECOND = 1_000_000_000


def request(number: int, ended: float, **fields: object) -> str:
    start = int((ended - 1) * SECOND)
    stamps = {"t_sched": start, "t_send": start, "t_first": start + SECOND // 5, "t_last": start + SECOND // 2}
    known = {"request_id": f"0-{number}", "worker": "0", "scenario": "s", "stage": 0, "outcome": "ok", "chunks": 4}
    counts = {"output_tokens": 31, "first_chunk_tokens": 1, "t_end": int(ended * SECOND)}
    return json.dumps({**known, **stamps, **counts, **fields}) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of two requests, one of them in flight."""
    meta = type("Meta", (), {"run_id": "20261122-100000-x-aaaa", "scenario": "steady", "label": "x"})()
    monkeypatch.setattr("analysis.watch.run.read_meta", lambda folder: meta)
    sent = '{"request_id":"0-2","worker":"0","stage":0,"t_sched":1,"t_send":1,"outcome":"sent"}\n'
    (tmp_path / "requests-0.jsonl").write_text(request(1, 5.0) + sent)
    return tmp_path


def test_a_run_is_read_as_it_grows(folder: Path) -> None:
    run = RunFolder(folder)
    first = run.look()
    assert (first.in_flight, first.rate, first.failed) == (1, 0.2, 0)
    assert first.latencies["TTFT"] == Percentiles(0.2, 0.2)
    assert first.latencies["TPOT"] == Percentiles(0.01, 0.01)
    with (folder / "requests-0.jsonl").open("a") as file:
        file.write(request(2, 10.0, outcome="timeout", t_first=None, t_last=None, output_tokens=None))
        file.write('{"request_id": "0-3"')  # a line that is being written
    second = run.look()
    assert (second.in_flight, second.rate, second.failed) == (0, 0.2, 0.5)
    assert second.latencies["TTFT"] == Percentiles(0.2, math.inf), "a failed request has waited for ever"
    assert second.findings == ["50 % of the requests fail"]


def test_users_are_summed_over_processes_and_the_run_ends_with_the_last(folder: Path) -> None:
    for worker, users in enumerate((3, 4)):
        (folder / f"telemetry-{worker}.jsonl").write_text(json.dumps({"t": SECOND, "users": users}) + "\n")
    run = RunFolder(folder)
    assert run.look().users == 7
    for worker, over in enumerate((False, True)):
        with (folder / f"telemetry-{worker}.jsonl").open("a") as file:
            file.write(json.dumps({"t": 2 * SECOND, "users": 0, "last": True}) + "\n")
        assert run.look().over is over


def test_what_a_load_test_exports() -> None:
    with exported(ScriptedRun("r", "x", time.time() - 10)) as address:
        page = ServerPage(address)
        page.look()
        time.sleep(0.5)
        now = page.look()
    assert now.users == USERS
    assert now.rate == pytest.approx(RATE, rel=0.1)
    assert now.tokens == pytest.approx(RATE * TOKENS, rel=0.1)
    assert now.failed == pytest.approx(1 - GOOD)
    ttft = now.latencies["TTFT"]
    assert MEANS["ttft"] / 2 < ttft.p50 < ttft.p99 < MEANS["ttft"] * 2
    assert now.gpu is None


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        pytest.param(0.5, 1.5, id="half way through the second bucket"),
        pytest.param(0.9, math.inf, id="beyond the last edge"),
    ],
)
def test_quantiles_are_interpolated(q: float, expected: float) -> None:
    assert quantile(q, [(1.0, 2.0), (2.0, 8.0), (math.inf, 10.0)]) == expected


def test_a_server_that_is_not_there() -> None:
    with pytest.raises(UnreachableServer, match="cannot be read"):
        ServerPage(f"127.0.0.1:{free_port()}")


def test_a_screen_has_80_columns() -> None:
    long = Moment(
        0.0,
        users=1_000_000,
        rate=1234.5678,
        latencies={"TTFT": Percentiles(0.0123, math.inf)},
        gpu=0.97,
        gpu_memory=66e9,
        power=512,
        findings=["x" * 100],
    )
    console = Console(width=200, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(screen("a title that is longer than the screen is wide, " * 3, [long] * 60))
    lines = console.export_text().splitlines()
    assert {len(line) for line in lines} == {WIDTH}
    assert any("12.3 ms / ∞" in line for line in lines)


def test_a_course_has_gaps_where_nothing_is_known() -> None:
    assert sparkline([0.0, 4.0, None, 8.0, math.inf]) == "▁▅ ██"


@pytest.mark.parametrize("what", ["nothing-here", f"127.0.0.1:{free_port()}"], ids=["no run", "no server"])
def test_a_mistake_gets_a_sentence(what: str, tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, what], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "Ctrl-C"])
def test_it_quits_and_leaves_the_terminal_as_it_was(key: bytes) -> None:
    controller, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    with exported(ScriptedRun("r", "x", time.time() - 10)) as address:
        process = subprocess.Popen(
            [*COMMAND, address, "--every", "0.2"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
            start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(0, termios.TIOCSCTTY, 0),
        )
        shown = _until(controller, b"requests/s")
        os.write(controller, key)
        shown += _until(controller, b"\x1b[?1049l")
        assert process.wait(30) == 0
    assert b"\x1b[?1049h" in shown, "on a screen of its own, as over SSH"
    assert termios.tcgetattr(terminal) == before
    os.close(controller)
    os.close(terminal)


def _until(controller: int, wanted: bytes) -> bytes:
    seen, deadline = b"", time.monotonic() + 60
    while wanted not in seen:
        assert time.monotonic() < deadline, seen[-500:]
        if select.select([controller], [], [], 1)[0]:
            seen += os.read(controller, 65536)
    return seen
