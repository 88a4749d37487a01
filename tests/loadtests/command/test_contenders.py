"""What is compared: names, and what is given for all contenders or for one."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from enginebench.records.files import read_meta, read_requests
from enginebench.records.metrics import BY_NAME
from enginebench.records.run import READY, STARTED, RunMeta
from enginebench.settings.schema import UserMistake
from loadtests.harness.command.contenders import Contender, contenders, key_variable
from tests.support.loadtests.run_command import run_here
from tests.support.servers.scripted import Script, ScriptedServer


def test_engines_and_servers_are_contenders_each_with_what_is_its_own() -> None:
    few, many, old, new = contenders(
        ["few=vllm", "many=vllm"],
        ["old=http://a:1", "new=b:2/v1"],
        ["few.concurrency=16", "many.concurrency=64", "p=a.b=c"],
        ["small", "old=large"],
        ["X-Tenant: all", "new.X-Tenant: 7"],
        {"ENGINEBENCH_OLD_API_KEY": "secret"},
    )
    assert few == Contender("few", "vllm", "", "small", ("concurrency=16", "p=a.b=c"), "X-Tenant: all")
    assert many == Contender("many", "vllm", "", "small", ("concurrency=64", "p=a.b=c"), "X-Tenant: all")
    assert old == Contender("old", "", "http://a:1", "large", (), "X-Tenant: all", "secret")
    assert new == Contender("new", "", "http://b:2/v1", "small", (), "X-Tenant: all\nX-Tenant: 7")
    assert "secret" not in repr(old)
    assert "all" not in repr(old)


def test_a_server_is_started_by_its_own_command_and_files_leave_the_cache_for_whom_they_are_named() -> None:
    engine, old, new = contenders(
        ["a"], ["old=http://a:1", "new=http://b:2"], restarts=["serve --all", "new=serve x=1"], uncached=["/m", "a=/n"]
    )
    assert (engine.restart, engine.uncached) == ("", ("/m", "/n"))
    assert (old.restart, old.uncached) == ("serve --all", ("/m",))
    assert (new.restart, new.uncached) == ("serve x=1", ("/m",))


@pytest.mark.parametrize(
    ("engines", "urls", "names"),
    [
        pytest.param(["fake"], [], ["fake"], id="an engine"),
        pytest.param([], ["http://a:1"], [""], id="a lone server says itself what it is"),
        pytest.param([], ["http://a:1", "http://b:1/v1/"], ["a:1", "b:1/v1"], id="several by their addresses"),
        pytest.param(["fake"], ["http://a:1"], ["fake", "a:1"], id="both"),
        pytest.param([], ["http://a:1/b=c"], [""], id="an equals sign in an address"),
    ],
)
def test_contenders_without_a_name_get_one(engines: list[str], urls: list[str], names: list[str]) -> None:
    assert [one.name for one in contenders(engines, urls)] == names


def test_each_contender_is_run_with_each_model_under_a_name_of_its_own() -> None:
    tested = contenders(["a", "b"], [], models=["small", "b=large", "b=huge"])
    assert [(one.name, one.model) for one in tested] == [("a", "small"), ("b large", "large"), ("b huge", "huge")]
    tested = contenders([], ["http://x"], models=["small", "large"])
    assert [(one.name, one.model) for one in tested] == [("small", "small"), ("large", "large")]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        pytest.param(((), ()), "choose what to test", id="nothing"),
        pytest.param(((), ("v0.6=http://a:1",)), "`v0.6` cannot be the name of a contender", id="a dot in a name"),
        pytest.param((("v0.6=vllm",), ()), "`v0.6` cannot be the name of a contender", id="of an engine"),
        pytest.param((["a"], (), (), (), (), {}, ["serve"]), "--restart starts the server at a URL", id="no URL"),
        pytest.param((["a", "a"], ()), "several `a`: .* such as --engine first=a", id="twice"),
        pytest.param(((), ["x=http://a", "x=http://b"]), "such as --url first=http://a", id="two servers of one name"),
        pytest.param((["a"], (), ["b.c=1"]), "`b`, which is not among the engines: a", id="another's option"),
        pytest.param(((), ["http://a"], ["b=1"]), "not of a running server", id="an option of a server"),
        pytest.param((["a"], (), (), ["b=c"]), "--model b=… is for `b`, .* contenders: a", id="another's model"),
        pytest.param((["a"], (), (), (), ["b.C: d"]), "--header b.… is for `b`", id="another's header"),
        pytest.param((["a"], (), (), (), ["b"]), "a header is `Name: value`", id="no header"),
        pytest.param((["a"], (), (), ["small", "small"]), "only once", id="a model twice"),
        pytest.param(((), ["x=ftp://a"]), "`ftp://a` is not a server's address", id="no web server"),
    ],
)
def test_what_belongs_to_nobody_is_refused(given: Any, sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        contenders(*given)


def test_the_variable_of_a_key() -> None:
    assert key_variable("old-one") == "ENGINEBENCH_OLD_ONE_API_KEY"
    assert key_variable("") == "ENGINEBENCH_API_KEY"


@dataclass(frozen=True)
class Compared:
    """Two rounds of two configurations of an engine and a running server: the slow one takes 120 ms to the first token,
    the quick one 20 ms, the server 50 ms."""

    folder: Path
    runs: list[Path]  # in the order in which they were run
    stderr: str
    server: ScriptedServer

    @property
    def metas(self) -> list[RunMeta]:
        return [read_meta(run) for run in self.runs]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    folder = tmp_path_factory.mktemp("runs")
    command = ["--engine", "slow=fake", "-o", "slow.ttft=0.12", "--engine", "quick=fake", "-o", "quick.ttft=0.02"]
    command += ["-o", "tpot=0.002", "--model", "there=second", "--header", "there.X-Tenant: 7"]
    command += ["--repeat", "2", "--keep-loaded", "--stages", "2", "--stage-seconds", "1", "--runs", str(folder)]
    command += ["--prompt-tokens", "uniform:60-90", "--output-tokens", "uniform:4-8"]
    with ScriptedServer(Script(ttft=0.05, models=("first", "second"), engine=None)) as server:
        url = f"there={server.url.partition('://')[2]}"
        keys = {"ENGINEBENCH_THERE_API_KEY": "of-there", "ENGINEBENCH_API_KEY": "of-all"}
        done = run_here("run", "concurrent", *command, "--url", url, environment=keys)
    assert "Traceback" not in done.stderr
    runs = sorted((path.parent for path in folder.glob("*/meta.json")), key=lambda run: read_meta(run).started_at)
    return Compared(folder, runs, done.stderr, server)


def test_two_configurations_of_an_engine_and_a_server_are_interleaved_and_compared(compared: Compared) -> None:
    assert "This takes at least 6 s: 6 runs of 1 s: 1 s at 2 users." in compared.stderr
    assert "round 2 of 2" in compared.stderr
    order = ["slow", "quick", "there"]
    assert [meta.label for meta in compared.metas] == [*order, *reversed(order)]
    assert [meta.repeat for meta in compared.metas] == [0] * 3 + [1] * 3
    for run, meta in zip(compared.runs, compared.metas, strict=True):
        ttfts = sorted(BY_NAME["ttft"].read(record) or 0.0 for record in read_requests(run))
        least, most = {"slow": (0.12, 0.2), "quick": (0.02, 0.1), "there": (0.05, 0.12)}[meta.label]
        assert least <= ttfts[len(ttfts) // 2] < most
    document = json.loads(run_here("compare", compared.folder, "--baseline", "slow", "--json").stdout)
    assert {candidate["engine"] for candidate in document["candidates"]} == {"slow", "quick", "there"}
    assert document["candidates"][0]["engine"] == "quick"


def test_what_is_given_for_one_contender_goes_to_it_alone(compared: Compared) -> None:
    assert {headers["authorization"] for headers in compared.server.headers} == {"Bearer of-there"}
    assert {headers["x-tenant"] for headers in compared.server.headers} == {"7"}
    assert {body["model"] for body in compared.server.bodies} == {"second"}
    files = [path for run in compared.runs for path in run.iterdir() if path.is_file()]
    assert not [path for path in files if b"of-there" in path.read_bytes()]


def test_each_engine_is_loaded_once_on_a_port_of_its_own(compared: Compared) -> None:
    loading = [[event.what for event in meta.events if event.what in {STARTED, READY}] for meta in compared.metas]
    assert loading == [[STARTED, READY]] * 2 + [[]] * 4, "its loading time is that of the run for which it was loaded"
    served = {label: {meta.url for meta in compared.metas if meta.label == label} for label in ("slow", "quick")}
    assert [len(urls) for urls in served.values()] == [1, 1]
    assert served["slow"] != served["quick"]
    for label, (url,) in served.items():
        assert f"{label} stays loaded, on port {url.rpartition(':')[2]}" in compared.stderr
    assert all("--keep-loaded" in meta.command for meta in compared.metas)
    logs = [(run / "server.log").exists() for run in compared.runs]
    assert logs == [True, True, False, False, True, True], "there is none of a running server"


def asked(run: Path) -> dict[int, list[tuple[str | None, int | None, int | None]]]:
    """The prompts and planned lengths of each user, in order."""
    questions: dict[int, list[tuple[str | None, int | None, int | None]]] = {}
    for record in sorted(read_requests(run), key=lambda record: record.t_sched):
        assert record.user is not None
        question = (record.prompt_id, record.planned_prompt_tokens, record.planned_output_tokens)
        questions.setdefault(record.user, []).append(question)
    return questions


def test_contenders_of_a_round_are_asked_the_same_and_rounds_are_asked_alike(compared: Compared) -> None:
    """The same prompts within a round, others in the next one, and the same planned lengths in both."""
    slow_0, quick_0, _, _, quick_1, slow_1 = (asked(run) for run in compared.runs)
    sets = [meta.workload["prompt_set"] for meta in compared.metas]
    assert sets[0] == sets[1] == sets[2] != sets[3] == sets[4] == sets[5]
    for some, others, same in ((slow_0, quick_0, True), (slow_1, quick_1, True), (slow_0, slow_1, False)):
        assert some.keys() == others.keys() == {0, 1}
        for user in some:
            pairs = list(zip(some[user], others[user], strict=False))
            assert len(pairs) >= 2
            assert all(a[1:] == b[1:] for a, b in pairs), "the same lengths"
            assert {a[0] == b[0] for a, b in pairs} == {same}


def test_answers_are_compared_alone_under_load_and_between_engines(tmp_path: Path) -> None:
    command = ["--engine", "a=fake", "--engine", "b=fake", "-o", "tpot=0.001", "--stages", "1,4"]
    command += ["--stage-requests", "64", "--output-tokens", "8", "--runs", str(tmp_path), "--json", "--allow-invalid"]
    document = json.loads(run_here("run", "answers", *command).stdout)
    assert {row["engine"] for row in document["rows"] if row["statistic"] == "answers_under_load"} == {"a", "b"}
    (under_load,) = (each for each in document["warnings"] if each["kind"] == "answers_under_load")
    assert under_load["evidence"].endswith("prompts got the same answer at 4 users as at 1 user")
