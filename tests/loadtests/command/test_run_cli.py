"""`enginebench run`: serve, load, stop, report; and what it says when something is wrong."""

import json
import subprocess
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from enginebench.records.files import read_meta, read_requests
from enginebench.records.metrics import BY_NAME
from enginebench.settings.schema import UserMistake, settings_of
from loadtests import cli
from loadtests.harness.command import measured_run
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.job import Job
from loadtests.harness.command.run_order import rounds
from loadtests.harness.command.scenarios import find_scenario
from loadtests.harness.run.options import processes_options
from loadtests.harness.scenario import Scenario
from loadtests.harness.settings.run_settings import RunSettings
from tests.support.loadtests.locust_process import CONCURRENT
from tests.support.loadtests.run_command import ENVIRONMENT, RUN, run_here
from tests.support.servers.scripted import Script, ScriptedServer

SHORT = ["--stages", "2,3", "--stage-seconds", "1", "--prompt-tokens", "40", "--output-tokens", "8"]


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
    assert (meta.label, meta.scenario) == ("fake", "concurrent")
    assert meta.command[:7] == ("python", "-m", "enginebench", "run", "concurrent", "--engine", "fake"), "as typed"
    assert [stage.label for stage in meta.stages] == ["2 users", "3 users"]
    assert meta.engine is not None
    assert meta.engine["name"] == "fake"
    records = list(read_requests(folder))
    assert {one.outcome for one in records} == {"ok"}
    assert {one.output_tokens for one in records} == {8}
    assert 0.049 < min(BY_NAME["ttft"].read(one) or 0.0 for one in records) < 0.5, "and what a busy machine adds"
    assert {path.name for path in folder.iterdir()} >= {"locust.log", "server.log", "telemetry.jsonl"}
    assert f"fake: {len(records)} requests, 0 failed" in done.stderr
    port = meta.url.rpartition(":")[2]
    assert not any(port in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
    assert "fake" in done.stdout


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(["--engine", "fake", "--url", "http://127.0.0.1:9"], "cannot reach", id="one of two is missing"),
        pytest.param(["--engine", "fake", "--url", "http://x", "--label", "y"], "name the contenders", id="one label"),
        pytest.param(["--engine", "fake", "--repeat", "2", "--run-id", "y"], "--run-id names one run", id="one folder"),
        pytest.param(["--url", "http://127.0.0.1:9", "--keep-loaded"], "engines that --engine", id="none to keep"),
        pytest.param(["--engine", "fake", "--keep-loaded"], "is for --repeat", id="kept for nothing"),
        pytest.param(["--engine", "fake", "--stages", "some"], "such as 10,20,40", id="stages that are no numbers"),
        pytest.param(["--engine", "fake", "-o", "ttft"], "name=value", id="a setting without a value"),
        pytest.param(["--url", "http://127.0.0.1:9"], "cannot reach", id="no server there"),
        pytest.param(["--url", "127.0.0.1:9"], "cannot reach http://127.0.0.1:9", id="an address without http"),
        pytest.param(["--url", "http://me:a-secret@127.0.0.1:9"], "set ENGINEBENCH_API_KEY instead", id="a password"),
        pytest.param(
            ["--engine", "fake", "--profile", "gprof"], "--profile is py-spy, nsys or a command", id="a profiler"
        ),
        pytest.param(
            ["--url", "http://x", "--profile", "sh {pid}"], "--profile is for engines", id="nothing to profile"
        ),
        pytest.param(["--engine", "vlm"], "no engine called `vlm`; did you mean `vllm`?", id="an engine's name"),
        pytest.param(
            ["--engine", "fake", "--heade", "A: b"],
            "no option called `--heade`; did you mean `--header`?",
            id="half a flag",
        ),
    ],
)
def test_a_mistake_gets_a_sentence_and_exit_code_2_before_there_is_a_folder(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    done = run_here("run", "concurrent", *options, "--stage-seconds", "1", "--runs", tmp_path)
    assert sentence in done.stderr
    assert "a-secret" not in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 2
    assert done.stdout == ""


def test_what_locust_says_of_its_command_line_is_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "locust.log"
    log.write_text(
        "usage: __main__.py [options] [UserClass ...]\n\n__main__.py: error: unrecognized arguments: --nosuch\n"
    )
    assert measured_run._error(log) == "unrecognized arguments: --nosuch"


def test_a_folder_that_cannot_be_written_gets_a_sentence_and_exit_code_2(tmp_path: Path) -> None:
    taken = tmp_path / "a-file"
    taken.touch()
    done = run_here("run", "concurrent", "--engine", "fake", "--runs", taken)
    assert f"{taken} cannot be written (File exists): name another folder with --runs." in done.stderr
    assert (done.exit_code, done.stdout) == (2, "")


def test_an_unknown_scenario_is_the_first_thing_that_is_said() -> None:
    done = CliRunner().invoke(app, ["run", "nope"])
    assert "no scenario called `nope`, and no such file; choose from agents, " in done.stderr
    assert done.exit_code == 2


@pytest.mark.parametrize(
    ("scenario", "given", "sentence"),
    [
        pytest.param("capacity", {"by": "users"}, None, id="capacity has objectives of its own"),
        pytest.param("concurrent", {"by": "users"}, "needs --slo", id="concurrent has none"),
        pytest.param("rate", {"warm_up": "40"}, None, id="a stage of rate has 60 s"),
        pytest.param("concurrent", {"warm_up": "40"}, "no time to measure", id="one of concurrent has 30 s"),
        pytest.param("spike", {"stage_seconds": "9"}, "no time to measure", id="a spike warms up for 10 s"),
        pytest.param("replay", {}, "give a trace", id="there is no trace to replay"),
    ],
)
def test_settings_are_checked_with_the_scenarios_own_before_anything_is_started(
    scenario: str, given: dict[str, str], sentence: str | None
) -> None:
    if sentence is None:
        assert Job.of(find_scenario(scenario), given, 1, []).texts == given
    else:
        with pytest.raises(UserMistake, match=sentence):
            Job.of(find_scenario(scenario), given, 1, [])


def test_an_invalid_run_leaves_with_2_unless_told_otherwise(tmp_path: Path) -> None:
    with ScriptedServer(Script(statuses=[500] * 1000, models=("first", "second"))) as server:
        words = ("--url", server.url, "--json", "--stages", "1", "--stage-seconds", "2")
        done = run_here("run", "concurrent", *words, "--runs", tmp_path, "--run-id", "mine")
    assert done.exit_code == 2, done.stderr
    assert f"{server.url} lists 2 models; first is tested. --model names another." in done.stderr
    assert read_meta(tmp_path / "mine").label == "scripted", "as the server calls its engine"
    document = json.loads(done.stdout)
    assert document["exit_code"] == 2
    assert [each["kind"] for each in document["warnings"] if each["severity"] == "invalid"] == ["failures"]
    assert cli._report([tmp_path / "mine"], allow_invalid=True, as_json=True, has_slo=False) == 0


def test_an_unknown_scenario_gets_the_choices(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="did you mean `concurrent`"):
        find_scenario("concurent")
    with pytest.raises(UserMistake, match=r"choose from agents, .*concurrent, .*single"):
        find_scenario("cli")
    with pytest.raises(UserMistake, match="does not exist"):
        find_scenario(str(tmp_path / "mine.py"))
    (tmp_path / "mine.py").touch()
    assert find_scenario(str(tmp_path / "mine.py")) == tmp_path / "mine.py"
    assert find_scenario("concurrent").name == "concurrent.py"


def test_the_help_of_run_is_one_screen_with_the_scenarios_and_the_basic_options() -> None:
    lines = CliRunner().invoke(app, ["run", "--help"]).stdout.splitlines()
    assert len(lines) < 45
    assert max(map(len, lines)) <= 80
    assert "  concurrent      How do latency and throughput change with the number of users?" in lines
    assert [line.split()[0] for line in lines if line.startswith("  --")] == [
        "--engine", "--url", "--model", "--stages", "--rate", "--stage-seconds", "--slo", "--prompt-tokens",
        "--output-tokens", "--repeat", "--help-all",
    ]  # fmt: skip
    scenarios = CliRunner().invoke(app, ["scenarios"]).stdout.splitlines()
    assert [line for line in scenarios if line not in lines] == []
    assert len(scenarios) == 19


def test_help_all_has_every_option() -> None:
    text = CliRunner().invoke(app, ["run", "--help-all"], env={"COLUMNS": "200"}).stdout
    flags = {one.flag for declared in (Scenario, RunSettings) for one in settings_of(declared)}
    assert {flag for flag in flags if flag not in text} == set()


def test_what_goes_to_locust_has_no_secrets_in_it(tmp_path: Path) -> None:
    given = {"stages": "2", "no_stream": "yes", "quality": "no", "runs": str(tmp_path), "insecure": "yes"}
    job = Job.of(CONCURRENT, given, 2, ["--loglevel", "DEBUG"])
    assert job.words == ["--stages=2", "--no-stream", "--insecure"]
    assert (job.settings.runs, job.processes, job.locust) == (tmp_path, 2, ("--loglevel", "DEBUG"))
    contender = Contender("old", url="http://x", headers="X-Tenant: a-secret", key="a-key")
    assert contender.secrets == {"ENGINEBENCH_HEADER": "X-Tenant: a-secret", "ENGINEBENCH_API_KEY": "a-key"}


def test_several_processes_talk_on_a_port_of_their_own_and_on_loopback_only() -> None:
    assert processes_options(1) == []
    flags, values = processes_options(3)[::2], processes_options(3)[1::2]
    assert flags == ["--processes", "--master-bind-host", "--master-bind-port", "--master-port"]
    assert values[:2] == ["3", "127.0.0.1"]
    assert values[2] == values[3]
    assert values[2] not in processes_options(3)


def test_engines_are_interleaved_so_that_a_drift_favours_neither() -> None:
    a, b = Contender("a", engine="fake"), Contender("b", engine="fake")
    assert [(repeat.index, order) for repeat, order in rounds([a, b], 3)] == [(0, [a, b]), (1, [b, a]), (2, [a, b])]
    sets = [repeat.prompt_set for series in range(2) for repeat, _ in rounds([a], 3)]
    assert len(set(sets)) == 6, "every round of every series asks its own prompts"
