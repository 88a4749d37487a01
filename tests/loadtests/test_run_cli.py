"""`enginebench run`: serve, load, stop, report; and what it says when something is wrong."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from loadtests.cli import _warn_beyond_calibration
from loadtests.harness.run.drive import Measured, Mistake, engine_options, find_scenario
from loadtests.harness.run.progress import Tally, where_it_stands
from loadtests.harness.schedule.stages import SECOND, plan_stages
from records.request import read_meta, read_requests, write_meta
from tests.loadtests.test_collect import META
from tests.loadtests.test_recorder import record
from tests.support.scripted import Script, ScriptedServer

RUN = [sys.executable, "-m", "enginebench", "run", "concurrent"]
SHORT = ["--steps", "2,3", "--stage-seconds", "2", "--prompt-tokens", "40", "--output-tokens", "8"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("ENGINEBENCH", "OPENAI"))}


def test_an_engine_is_served_tested_and_stopped(tmp_path: Path) -> None:
    done = subprocess.run(
        [*RUN, "--engine", "fake", "-o", "ttft=0.05", "-o", "fake.tpot=0.01", *SHORT, "--runs", tmp_path],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    assert "Traceback" not in done.stderr
    assert " requests, 0 failed" in done.stderr, done.stderr
    (folder,) = tmp_path.iterdir()
    meta = read_meta(folder)
    assert (meta.label, meta.scenario, [stage.users for stage in meta.stages]) == ("fake", "concurrent", [2, 3])
    assert meta.engine is not None
    assert meta.engine["name"] == "fake"
    records = list(read_requests(folder))
    assert {one.outcome for one in records} == {"ok"}
    assert {one.output_tokens for one in records} == {8}
    ttfts = sorted(one.t_first - one.t_send for one in records if one.t_first and one.t_send)
    assert 0.049 < ttfts[len(ttfts) // 2] / SECOND < 0.1
    assert {path.name for path in folder.iterdir()} >= {"locust.log", "server.log", "telemetry.jsonl"}
    assert f"fake: {len(records)} requests, 0 failed" in done.stderr
    port = meta.url.rpartition(":")[2]
    assert not any(port in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    assert "fake" in done.stdout


def test_a_server_that_is_there_is_tested_where_it_is(tmp_path: Path) -> None:
    with ScriptedServer(Script(models=("first", "second"), engine=None)) as server:
        done = subprocess.run(
            [*RUN, "--url", server.url, "--model", "second", "--api-key", "a-secret", *SHORT, "--runs", tmp_path],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
        )
        assert {body["model"] for body in server.bodies} == {"second"}
        assert {headers["authorization"] for headers in server.headers} == {"Bearer a-secret"}
    assert "Traceback" not in done.stderr
    (folder,) = tmp_path.iterdir()
    assert read_meta(folder).label == server.url.removeprefix("http://")
    assert len(list(read_requests(folder))) == len(server.bodies)
    assert all(b"a-secret" not in path.read_bytes() for path in folder.iterdir() if path.is_file())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param([], "--engine NAME", id="nothing to test"),
        pytest.param(["--engine", "fake", "--url", "http://x"], "--engine NAME", id="two things to test"),
        pytest.param(["--engine", "fake", "--steps", "some"], "such as 10,20,40", id="steps that are no numbers"),
        pytest.param(["--engine", "fake", "--warm-up", "99%"], "no steady part", id="nothing left to measure"),
        pytest.param(["--engine", "fake", "-o", "vllm.a=1"], "not among the engines", id="a setting of another engine"),
        pytest.param(["--engine", "fake", "-o", "ttft"], "name=value", id="a setting without a value"),
        pytest.param(["--engine", "vlm"], "fake", id="no such engine: the server lists the choices"),
        pytest.param(["--url", "http://127.0.0.1:9"], "cannot reach", id="no server there"),
    ],
)
def test_a_mistake_gets_a_sentence_and_exit_code_2(tmp_path: Path, options: list[str], sentence: str) -> None:
    done = subprocess.run(
        [*RUN, *options, "--stage-seconds", "1", "--runs", tmp_path], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 2
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param([], 2, id="an invalid run leaves with 2"),
        pytest.param(["--allow-invalid"], 0, id="unless told otherwise"),
    ],
)
def test_an_invalid_run_leaves_with_2_unless_told_otherwise(tmp_path: Path, options: list[str], code: int) -> None:
    with ScriptedServer(Script(statuses=[500] * 1000)) as server:
        done = subprocess.run(
            [*RUN, "--url", server.url, "--json", *options, "--steps", "1", "--stage-seconds", "2", "--runs", tmp_path],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
        )
    assert done.returncode == code, done.stderr
    document = json.loads(done.stdout)
    assert document["invalid"] is True
    assert [f["kind"] for f in document["runs"][0]["findings"] if f["severity"] == "invalid"] == ["failures"]


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_stopped_it_leaves_no_process_behind_and_keeps_the_records(tmp_path: Path, stop: signal.Signals) -> None:
    process = subprocess.Popen(
        [*RUN, "--engine", "fake", "-o", "ttft=0.02", "--steps", "3", "--stage-seconds", "300", "--runs", tmp_path],
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    deadline = time.monotonic() + 60
    while sum(1 for folder in tmp_path.iterdir() for _ in read_requests(folder)) < 5:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.2)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 3, "the server, its engine, Locust"
    process.send_signal(stop)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "kept in" in said
    assert "Traceback" not in said
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    (folder,) = tmp_path.iterdir()
    outcomes = [one.outcome for one in read_requests(folder)]
    assert outcomes.count("ok") >= 5
    assert set(outcomes) <= {"ok", "cut_off"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(["a=1"], {"x": ["a=1"], "y": ["a=1"]}, id="for all"),
        pytest.param(["x.a=1", "b=2"], {"x": ["a=1", "b=2"], "y": ["b=2"]}, id="for one, and for all"),
        pytest.param(["x.p=a.b=c"], {"x": ["p=a.b=c"], "y": []}, id="dots and equals signs in a value"),
    ],
)
def test_settings_of_engines(given: list[str], expected: dict[str, list[str]]) -> None:
    assert engine_options(given, ["x", "y"]) == expected


def test_an_unknown_scenario_gets_the_choices(tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"choose from .*concurrent"):
        find_scenario("concurent")
    with pytest.raises(Mistake, match="no file"):
        find_scenario(str(tmp_path / "mine.py"))
    (tmp_path / "mine.py").touch()
    assert find_scenario(str(tmp_path / "mine.py")) == tmp_path / "mine.py"
    assert find_scenario("concurrent").name == "concurrent.py"


def test_progress_reads_records_as_they_grow(tmp_path: Path) -> None:
    tally = Tally(tmp_path)
    tally.update()
    assert tally.sentence(SECOND) == "0 requests, 0 failed, 0 tokens/s"
    lines = [record(number * SECOND).to_line() for number in range(1, 5)]
    path = tmp_path / "requests-0.jsonl"
    path.write_text(lines[0] + lines[1][:50])
    tally.update()
    assert tally.requests == 1, "half a line is not yet a record"
    path.write_text("".join(lines))
    (tmp_path / "requests-1.jsonl").write_text(dataclasses.replace(record(1), outcome="cut_off").to_line())
    tally.update()
    tally.update()
    # Four answers of four tokens within four seconds.
    assert tally.sentence(4 * SECOND) == "4 requests, 0 failed, 1 cut off by its end, 4 tokens/s, TTFT p50 0 ms"
    assert tally.peak == 4.0, "and of four chunks"


def test_a_run_beyond_what_was_calibrated_is_told_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_meta(tmp_path, dataclasses.replace(META, client_error=((500.0, 0.0001), (5000.0, 0.001))))
    runs = [Measured(tmp_path, "slow", 4000.0), Measured(tmp_path, "fast", 6000.0)]
    _warn_beyond_calibration(runs, Console(stderr=True))
    said = capsys.readouterr().err
    assert "fast: 6,000 chunks/s are more than" in said
    assert "(5,000/s)" in said
    assert "slow" not in said
    write_meta(tmp_path, META)
    _warn_beyond_calibration(runs, Console(stderr=True))
    assert capsys.readouterr().err == "", "of a host that was never calibrated the report tells"


def test_progress_says_where_the_run_stands(tmp_path: Path) -> None:
    stages = plan_stages((10, 20), 30, 6, 3)
    share, text = where_it_stands(stages, 45 * SECOND, Tally(tmp_path))
    assert share == 0.75
    assert text.startswith("stage 2/2, 20 users, 0:15 left, 0 requests")
    share, text = where_it_stands(stages, 61 * SECOND, Tally(tmp_path))
    assert share == 1.0
    assert text.startswith("last answers, 0 requests")
