"""Folders, files and archives from elsewhere: a sentence or a report, never a traceback, and nothing written outside.

A new case is one row of a table.
"""

import gzip
import json
import lzma
import os
import re
import shutil
import tarfile
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from typer.testing import CliRunner, Result

from enginebench.cli import app
from enginebench.records.files import read_meta
from enginebench.studies.study.folder import load_study
from loadtests.harness.run.prepare import prepare
from loadtests.harness.run.results_folder import new_folder
from loadtests.harness.scenario import Scenario, users
from loadtests.harness.settings.run_settings import RunSettings
from tests.support.analysis.other_tools import vllm_bench
from tests.support.analysis.synthetic import Engine, simulate
from tests.support.servers.scripted import Script, ScriptedServer
from tests.support.studies import GRID, write_study

Damage = Callable[[Path], object]
DEEP = "[" * 100_000
HOSTILE = "\x1b]0;x\x07\u202e\x9b31m\x00\n=1+1|`<img src=x>[x](http://x.example)</script>"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def enginebench(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def refused(result: Result, sentence: str) -> None:
    """With exit code 2 and one sentence that says `sentence`, not with a traceback."""
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert result.exit_code == 2, result.output
    told = " ".join(result.output.split())
    assert sentence in told
    assert told.endswith((".", "?")), told
    assert len(told) < 1000
    assert not CONTROLS.search(result.output)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(tmp_path_factory.mktemp("good") / "run", Engine("vllm", tokens=4), (1, 2), 3.0)


@pytest.fixture
def run(good: Path, tmp_path: Path) -> Path:
    return shutil.copytree(good, tmp_path / "runs" / "run")


def put(name: str, *changes: tuple[str, Any], line: int = 0) -> Damage:
    """Set values in a JSON document, or in a line of several: each by its path, such as `plan.0.window`."""

    def damage(folder: Path) -> None:
        text = (folder / name).read_text()
        lines = text.splitlines() if name.endswith("l") else [text]
        document = json.loads(lines[line])
        for path, value in changes:
            *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
            place = document
            for part in parents:
                place = place[part]
            place[last] = value
        lines[line] = json.dumps(document)
        (folder / name).write_text("\n".join(lines) + "\n")

    return damage


def content(name: str, data: str | bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)


def instead(name: str, make: Callable[[Path], object]) -> Damage:
    """Something else in the place of a file."""

    def damage(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return damage


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def link_to(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


ONLY_A_BURST = {"loop": "open", "per_second": 2.0, "profile": [{"part": "burst", "requests": 5}]}
UNREADABLE: list[tuple[Damage, str]] = [  # what was done to a run's folder, and what the sentence says
    (put("meta.json", ("run_id", "../../x")), "`../../x` is no name of a run"),
    (put("meta.json", ("started_at", "yesterday")), "Invalid isoformat string: 'yesterday'"),
    (put("meta.json", ("started_at", "2026-11-21T10:00:00")), "without its time zone"),
    (put("meta.json", ("plan.0.window.amount", 10**18)), "Expected `float` <= 100000000.0"),
    (put("meta.json", ("stages.0.steady_end", 10**18)), "Expected `int` <= 100000000000000000"),
    (put("meta.json", ("stages.0.steady_end", 10**40)), "a number in it has more than 64 bits"),
    (put("meta.json", ("stages.0.index", -1)), "Expected `int` >= 0"),
    (put("meta.json", ("stages.0.index", 7)), "stage 7 is not in the plan of 2"),
    (put("meta.json", ("plan.0.load", ONLY_A_BURST)), "a profile is a ramp over the window, or has a segment"),
    (put("meta.json", ("workload.slo", 5)), "`workload` has a `slo` of another type"),
    (put("meta.json", ("workload", 5)), "Expected `object`, got `int`"),
    (put("meta.json", ("quality", {"tokens": ["a"], "logprobs": [], "top": []})), "each token has one log-probability"),
    (put("meta.json", ("label", None)), "Expected `str`, got `null`"),
    (content("meta.json", DEEP), "it is nested too deep"),
    (content("meta.json", '{"a":' * 60 + "1" + "}" * 60), "it is nested deeper than 40 levels"),
    (content("meta.json", ""), "Input data was truncated"),
    (content("meta.json", b"\xff\xfe"), "cannot be understood"),
    (content("meta.json", '{"schema": NaN}'), "JSON is malformed"),
    (instead("meta.json", Path.mkdir), "meta.json is not a file"),
    (instead("meta.json", os.mkfifo), "meta.json is not a file"),
    (instead("meta.json", link_to("/dev/zero")), "meta.json is not a file"),
    (instead("meta.json", sparse), "which is more than the 32 MiB that are read"),
    (content("requests-0.jsonl", ""), "holds no request"),
    (content("requests-0.jsonl", DEEP + "\n"), "holds no request"),
    (content("requests-0.jsonl", b"\x00" * 1000), "holds no request"),
    (instead("requests-0.jsonl", Path.mkdir), "holds no request"),
    (instead("requests-0.jsonl", os.mkfifo), "holds no request"),
    (instead("requests-0.jsonl", link_to("/dev/zero")), "holds no request"),
]


@pytest.mark.parametrize(("damage", "sentence"), UNREADABLE)
def test_a_run_that_cannot_be_read_is_refused(run: Path, damage: Damage, sentence: str) -> None:
    damage(run)
    refused(enginebench("report", run), sentence)
    assert enginebench("runs", "--runs", run.parent).exit_code in {0, 2}


SEARCH = {"by": "rate", "unit": "req/s", "objectives": [], "precision": 0.1, "state": "missed at the lowest load"}
INSTANTS: list[Any] = [10**18, -(10**18), 10**30, 1.5, "x", None, True]
GAPS: list[Any] = [[10**18], [10**30], [1.5], ["x"], [None], 5, [[1]], {}]
COUNTS: list[Any] = [-1, 10**12, "x", [], 0.5]
MALFORMED_LINES: list[tuple[str, Any]] = [
    *(("t_end", value) for value in INSTANTS),
    *(("icl", value) for value in GAPS),
    *(("prompt_tokens", value) for value in COUNTS),
    ("stage", -1),
    ("outcome", "fine"),
    ("worker", 5),
    ("server_queue", "1"),
]
USABLE: list[tuple[Damage, ...]] = [  # parts of a run that are malformed, and so left out
    (
        put("meta.json", ("engine.options", 5), ("engine.features", "all"), ("engine.name", ["x"])),
        put("meta.json", ("host", {"cpu": [], "cores": -1, "memory": "much", "gpus": 5})),
    ),
    (
        put("meta.json", ("engine", {"name": {"a": 1}, "other": {"a": [1, None]}})),
        put("meta.json", ("search", SEARCH), ("quality", {"tokens": ["a"], "logprobs": [-1e6], "top": [{}]})),
        put("requests-0.jsonl", ("icl", [10**17, -5]), line=40),
        put("requests-0.jsonl", ("t_end", 10**17), ("user", 2**31 - 1), line=41),
    ),
    (
        put("telemetry.jsonl", ("t", 10**30)),
        put("telemetry.jsonl", ("server", {"enginebench_requests_running": 1e308}), line=1),
        put("telemetry.jsonl", ("server", {"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 1e308}), line=2),
        instead("telemetry-1.jsonl", os.mkfifo),
        instead("telemetry-2.jsonl", Path.mkdir),
    ),
    (content("telemetry.jsonl", DEEP + "\n"), instead("journal.jsonl", os.mkfifo)),
    (content("journal.jsonl", '{"stage": 5}\n{"event": {"t": 1e400, "what": 5}}\n\x00\n[]\n'),),
    (
        content("summary.json", DEEP),
        content("requests.parquet", "no table"),
        content("requests.parquet.json", '{"tokenizer": 5, "malformed_lines": "x"}'),
    ),
]


@pytest.mark.parametrize("damages", USABLE)
def test_a_part_that_is_malformed_is_left_out(run: Path, damages: tuple[Damage, ...]) -> None:
    for damage in damages:
        damage(run)
    done = enginebench("report", run)
    assert done.exit_code in {0, 1, 3}, done.output  # 3: the search found nothing
    assert "Report:" in done.output


def test_malformed_lines_are_counted(run: Path) -> None:
    for number, change in enumerate(MALFORMED_LINES):
        put("requests-0.jsonl", change, line=number)(run)
    done = enginebench("report", run)
    assert done.exit_code == 0, done.output
    document = json.loads((run / "summary.json").read_text())
    (skipped,) = [each for each in document["findings"] if each["kind"] == "records_missing"]
    assert str(len(MALFORMED_LINES)) in skipped["evidence"]


TABLES: list[Damage] = [  # in the place of the table, when the lines it was made from are gone
    content("requests.parquet", "no table"),
    lambda folder: pl.DataFrame({"a": [1]}).write_parquet(folder / "requests.parquet"),
    lambda folder: with_column(folder, pl.lit("x").alias("t_end")),
    lambda folder: with_column(folder, pl.lit(10**18).cast(pl.Int64).alias("t_end")),
    lambda folder: with_column(folder, pl.lit(-1).cast(pl.Int32).alias("stage")),
    lambda folder: with_column(folder, pl.lit(None).cast(pl.Int64).alias("t_sched")),
]


def with_column(folder: Path, column: pl.Expr) -> None:
    pl.read_parquet(folder / "requests.parquet").with_columns(column).write_parquet(folder / "requests.parquet")


@pytest.fixture(scope="module")
def reported(good: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run with its report, table and summary."""
    folder = shutil.copytree(good, tmp_path_factory.mktemp("reported") / "run")
    assert enginebench("report", folder).exit_code == 0
    return folder


@pytest.mark.parametrize("damage", TABLES)
def test_a_table_without_its_lines_is_checked(reported: Path, tmp_path: Path, damage: Damage) -> None:
    folder = shutil.copytree(reported, tmp_path / "run")
    (folder / "requests-0.jsonl").unlink()
    damage(folder)
    refused(enginebench("report", folder), "is damaged")


DERIVED = ("report.html", "summary.json", "requests.parquet", "requests.parquet.json")


def test_links_inside_a_run_are_replaced_and_not_followed(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in DERIVED:
        (outside / name).write_text("mine")
        (run / name).symlink_to(outside / name)
    (run.parent / "report.html").symlink_to(outside / "report.html")
    shutil.copytree(run, run.with_name("other"), symlinks=True)
    for words in ([run], [run.parent]):
        done = enginebench("report", *words)
        assert done.exit_code == 0, done.output
    assert {path.name: path.read_text() for path in outside.iterdir()} == dict.fromkeys(DERIVED, "mine")
    assert not any(path.is_symlink() for path in (*run.iterdir(), run.parent / "report.html"))
    assert all((run / name).stat().st_size > 100 for name in DERIVED)


def test_a_baseline_is_saved_inside_its_folder(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "baseline").mkdir()
    (tmp_path / "baseline" / read_meta(run).run_id).symlink_to(outside)
    assert enginebench("gate", "--baseline", tmp_path / "baseline", "--save-baseline", run).exit_code == 0
    assert list(outside.iterdir()) == []
    put("meta.json", ("run_id", str(outside / "x")))(run)
    refused(enginebench("gate", "--baseline", tmp_path / "baseline", "--save-baseline", run), "is no name of a run")


NAMES = ("[a]*?", "{b,c}", "d%20e", "~", "f'g\\h", "i\x1bj")


def test_a_folder_may_have_any_name(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = enginebench("report", shutil.copytree(good, tmp_path.joinpath(*NAMES)).relative_to(tmp_path))
    assert done.exit_code == 0, done.output
    named = os.fsdecode(b"x\xff")
    shutil.copytree(good, tmp_path / named)
    refused(enginebench("report", named), "is not UTF-8: rename it")


def test_texts_reach_no_terminal_and_no_file_as_commands(run: Path, tmp_path: Path) -> None:
    """Control characters are removed; Markdown, HTML, JSON in pages, CSV and SVG quote the rest."""
    facts = {"name": HOSTILE, "options": {HOSTILE: HOSTILE}, HOSTILE: HOSTILE}
    meta = ("label", "model", "scenario", "url", "command.0", "versions.enginebench", "host.cpu", "plan.0.name")
    put("meta.json", *((path, HOSTILE) for path in meta), ("engine", facts), ("stages.0.plan.name", HOSTILE))(run)
    for number in range(0, 60, 40):  # few enough that a percentile is left to be drawn
        line = {"outcome": "http_error", "detail": HOSTILE, "finish_reason": HOSTILE, "request_class": HOSTILE}
        put("requests-0.jsonl", *line.items(), ("status", 500), line=number)(run)
    files = [tmp_path / f"report{suffix}" for suffix in (".md", ".csv", ".svg", ".json", ".html")]
    done = enginebench("report", run, *(word for file in files for word in ("--output", file)))
    assert done.exit_code in {0, 2}, done.output
    for text in (done.output, *(file.read_text() for file in files[:4])):
        assert not CONTROLS.search(text)
    markdown, table, drawing, _, page = (file.read_text() for file in files)
    markdown = re.sub(r"(?ms)^```.*?^```$", "", markdown)
    assert not re.search(r"(?<!\\)<img|(?<!\\)\]\(http", markdown)
    assert not re.search(r"""(?m)^(?:[^,"]*,)*"?[=+@-](?!\d)""", table)
    assert "<img" not in drawing
    assert "<img src=x" not in page
    assert not re.search(r"</script>(?!\n|<|\s)", page)


def test_a_saved_summary_is_checked(reported: Path, tmp_path: Path) -> None:
    for change, sentence in (
        (("run_id", "../x"), "is no name of a run"),
        (("label", 5), "Expected `str`, got `int`"),
        (("stages.0.metrics", []), "Expected `object`, got `array`"),
        (("schema", 1), "has schema 1"),
    ):
        saved = tmp_path / "saved"
        shutil.rmtree(saved, ignore_errors=True)
        saved.mkdir()
        shutil.copyfile(reported / "summary.json", saved / "summary.json")
        put("summary.json", change)(saved)
        refused(enginebench("compare", saved), sentence)


@pytest.fixture(scope="module")
def good_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = {name: getattr(GRID, name)[:count] for name, count in (("parts", 1), ("engines", 2), ("models", 1))}
    grid = msgspec.structs.replace(GRID, repeats=1, **small)
    return write_study(tmp_path_factory.mktemp("study") / "study", grid, (1, 2), 2.0)


STUDIES: list[tuple[Damage, str]] = [
    (content("study.json", ""), "cannot be understood"),
    (content("study.json", DEEP), "it is nested too deep"),
    (instead("study.json", os.mkfifo), "study.json is not a file"),
    (put("study.json", ("grid", 5)), "Expected `object`, got `int`"),
    (put("study.json", ("name", "../../x")), "is no name of a study"),
    (put("study.json", ("grid.engines.0.label", "../../x")), "needs a label of letters"),
    (put("study.json", ("grid.baseline", "other")), "baseline names `other`"),
    (put("study.json", ("grid.repeats", 10**9)), "repeats is 1 or more, and 1000 at most"),
    (put("study.json", ("grid.slo", ["fast"])), "an objective is"),
    (put("study.json", ("grid.price.per_hour", -1)), "per_hour is a price, not -1"),
    (put("study.json", ("grid.parts.0.limit", 0)), "limit is above 0"),
]


@pytest.mark.parametrize(("damage", "sentence"), STUDIES)
def test_a_study_that_cannot_be_read_is_refused(
    good_study: Path, tmp_path: Path, damage: Damage, sentence: str
) -> None:
    folder = shutil.copytree(good_study, tmp_path / "study")
    damage(folder)
    refused(enginebench("study", "report", folder), sentence)


def test_a_study_writes_into_its_own_folder(good_study: Path, tmp_path: Path) -> None:
    folder, outside = shutil.copytree(good_study, tmp_path / "study"), tmp_path / "outside"
    outside.mkdir()
    for name in ("report.html", "report.md", "frame.parquet", "card.svg"):
        (outside / name).write_text("mine")
        (folder / name).symlink_to(outside / name)
    put("cells.jsonl", ("path", "../outside"))(folder)
    assert enginebench("study", "report", folder).exit_code == 0
    assert {path.read_text() for path in outside.iterdir()} == {"mine"}
    assert [state.outcome for state in load_study(folder).cells] == ["left", "done"]
    (outside / "study.lock").write_text("mine")
    (folder / "study.lock").symlink_to(outside / "study.lock")
    refused(enginebench("study", folder), "study.lock is a link")
    assert (outside / "study.lock").read_text() == "mine"


def entry(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    made = tarfile.TarInfo(name)
    made.size, made.type, made.linkname = size, kind, link
    return made.tobuf()


GIB = 1 << 30
SOME = bytes(1 << 20)
ARCHIVES: list[tuple[str, bytes, str]] = [
    ("ten-gib.tar.gz", gzip.compress(entry("b/study.json", 10 * GIB) + SOME), "unpacks to more than any study"),
    ("ten-gib.tar.xz", lzma.compress(entry("b/study.json", 10 * GIB) + SOME), "unpacks to more than any study"),
    ("header.tar.gz", gzip.compress(entry("b", GIB, tarfile.XHDTYPE) + SOME), "a header in it is too large"),
    ("names.tar", (entry("b", 10, tarfile.GNUTYPE_LONGNAME) + bytes(512)) * 3000, "recursion"),
    ("link.tar", entry("b/x", 0, tarfile.SYMTYPE, "/etc") + bytes(1024), "neither a file nor a folder"),
    ("device.tar", entry("b/x", 0, tarfile.CHRTYPE) + bytes(1024), "neither a file nor a folder"),
    ("up.tar", entry("../x") + bytes(1024), "outside the destination"),
    ("absolute.tar", entry("/x") + bytes(1024), "too long or absolute"),
    ("deep.tar", entry("a/" * 40 + "x") + bytes(1024), "too long or absolute"),
    ("two.tar", entry("a/study.json") + entry("b/study.json") + bytes(1024), "holds no study"),
    ("empty.tar", b"", "empty file"),
    ("cut.tar.xz", lzma.compress(entry("b/x", 1000) + SOME)[:90], "holds no study"),
    ("noise.tar.xz", b"\xfd7zXZ\0" + bytes(range(200)), "is no archive of a study"),
    ("noise.tar.gz", b"\x1f\x8b\x08\0" + bytes(range(200)), "is no archive of a study"),
]


@pytest.mark.parametrize(("name", "data", "sentence"), ARCHIVES, ids=[name for name, *_ in ARCHIVES])
def test_an_archive_that_is_no_study_is_refused(tmp_path: Path, name: str, data: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(data)
    refused(enginebench("study", "report", tmp_path / name, "--folder", tmp_path / "study"), sentence)
    assert [path.name for path in tmp_path.iterdir()] == [name]


IMPORTS: list[tuple[Damage, str]] = [
    (content("results.json", DEEP), "is not JSON"),
    (content("results.json", b"\xff"), "is not text in UTF-8"),
    (instead("results.json", Path.mkdir), "is not a file"),
    (instead("results.json", os.mkfifo), "is not a file"),
    (instead("results.json", sparse), "which is more than the 1024 MiB that are read"),
    *(
        (put("results.json", change), "cannot be read")
        for change in (("start_times", 5), ("ttfts.0", "x"), ("itls.0", [float("inf")]), ("latencies.0", 1e300))
    ),
    *(
        (put("results.json", change), "has numbers or texts that no run can have")
        for change in (("input_lens.0", "x"), ("output_lens.0", -1), ("latencies.0", 1e15), ("model_id", [1]))
    ),
]


@pytest.mark.parametrize(("damage", "sentence"), IMPORTS)
def test_results_that_cannot_be_imported_are_refused(tmp_path: Path, damage: Damage, sentence: str) -> None:
    vllm_bench(tmp_path / "results.json")
    damage(tmp_path)
    refused(enginebench("import", tmp_path / "results.json", "--runs", tmp_path / "runs", "--label", "x"), sentence)
    assert not (tmp_path / "runs").exists()


def test_runs_of_one_id_have_a_folder_each(tmp_path: Path) -> None:
    made: list[Path] = []
    settings, at = RunSettings(runs=tmp_path / "runs", run_id="x"), datetime(2026, 11, 21, tzinfo=UTC)
    threads = [threading.Thread(target=lambda: made.append(new_folder(settings, "vllm", at))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(path.name for path in made) == ["x", *(f"x-{number}" for number in range(2, 9))]


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", "..", ".x", "-x", "a\nb"])
def test_a_run_id_is_no_path(name: str, tmp_path: Path) -> None:
    words = ("run", "concurrent", "--url", "http://127.0.0.1:9", "--runs", tmp_path / "runs", f"--run-id={name}")
    refused(enginebench(*words), "--run-id is the name of a folder in --runs")
    assert list(tmp_path.iterdir()) == []


ENGINES: list[tuple[Any, dict[str, Any] | None]] = [  # what /v1/engine answers, and what is kept of it
    ({"name": "vllm", "options": 5}, {"name": "vllm"}),
    ({"name": 5, "features": "all", "context_length": -1, "libraries": [1]}, None),
    ({"name": "v\x1b[31mllm\u202e", "other": {"\x07a": ["\x9b"]}}, {"name": "v[31mllm", "other": {"␇a": [""]}}),
    ([1], None),
    (5, None),
]


@pytest.mark.parametrize(("told", "kept"), ENGINES)
def test_what_a_server_says_of_its_engine_is_checked_before_the_run(
    tmp_path: Path, told: Any, kept: dict[str, Any] | None
) -> None:
    scenario = Scenario(stages=users("1"))
    with ScriptedServer(Script(engine=told)) as server:
        plan = prepare("short", scenario, RunSettings(runs=tmp_path), server.url, scenario.plan(), (0,), 1, grace=0.0)
    assert plan.meta.engine == kept
    assert read_meta(Path(plan.folder)).engine == kept
