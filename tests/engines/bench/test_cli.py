"""`enginebench bench` as people run it, on the fake engine, whose delays are known."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median

import pytest
from typer.testing import CliRunner, Result

from enginebench.cli import app
from engines.bench.result import BenchResult, read_result

QUICK = ("--samples", "3", "--repeat", "1", "--warm-up", "0", "--seconds", "1")
ONLY_DECODE = ("--prefill", "", "--generate", "8", "--batch", "1")


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "140", "NO_COLOR": "1"})


def measure(folder: Path, *arguments: str) -> BenchResult:
    done = bench(*arguments, "--output", str(folder / "bench.json"))
    assert done.exit_code == 0, done.output
    return read_result(folder / "bench.json")


def metrics(result: BenchResult) -> set[tuple[str, int | None]]:
    return {(row.metric, row.load) for row in result.rows if row.engine is not None}


@pytest.mark.alone
def test_known_delays_are_measured_as_they_are(tmp_path: Path) -> None:
    """A busy machine delays single tokens and none comes early: with a sample a round, the best round is within 10 % of
    the truth, and 6 ms in which a process is woken. A rate between two tokens may err to either side, so its median is
    looked at."""
    delays = ("ttft=0.03", "ttft_per_prompt_token=0.0002", "tpot=0.01", "tpot_per_running=0.002", "load_time=0.3")
    options = [part for delay in delays for part in ("-o", delay)]
    result = measure(
        tmp_path,
        *("fake", *options, "--samples", "5", "--repeat", "5", "--warm-up", "1"),
        *("--prefill", "32,512", "--generate", "10,20", "--batch", "1,4"),
    )
    values: dict[tuple[str, int | None], list[float]] = {}
    for row in result.rows:
        if row.engine == "fake" and row.value is not None:
            values.setdefault((row.metric, row.load), []).append(row.value)
    first = 0.03 + 32 * 0.0002
    truth = {
        ("prefill", 32): first,
        ("prefill", 512): 0.03 + 512 * 0.0002,
        ("generate", 10): first + 9 * 0.01,
        ("generate", 20): first + 19 * 0.01,
        ("load", None): 0.3,
    }
    for key, seconds in truth.items():
        late = 2.0 if key == ("load", None) else 0.1 * seconds + 0.006  # a process starts, too
        assert seconds * 0.999 <= min(values[key]) <= seconds + late, key
    for size, rate in {1: 32 / (first + 31 * 0.01), 4: 128 / (first + 31 * 0.016)}.items():
        assert 0.85 * rate <= max(values["batch", size]) <= 1.001 * rate, size
    for key, value in {("decode", None): 0.01, ("batch decode", 1): 100.0, ("batch decode", 4): 250.0}.items():
        assert median(values[key]) == pytest.approx(value, rel=0.25), key
    peak, loaded = values["memory peak", None][0], values["memory", None][0]
    assert peak >= values["prefill memory", 512][0] >= values["prefill memory", 32][0] > 1e6
    assert peak >= loaded > 1e6


def test_too_long_a_prefill_is_left_out_with_the_reason(tmp_path: Path) -> None:
    """Two tokens take 4 ms or more, so 512 take a second or more, which is the limit."""
    result = measure(
        tmp_path,
        *("fake", "-o", "ttft_per_prompt_token=0.002", *QUICK, "--seconds", "0.5"),
        *("--prefill", "1,2,512,1024", "--generate", "2", "--batch", "1"),
    )
    assert ("prefill", 2) in metrics(result)
    assert [case.case for case in result.left_out] == ["prefill 512", "prefill 1024"]
    reason = re.fullmatch(r"it would take ([\d.]+) s or more: give --seconds (\d+)", result.left_out[0].why)
    assert reason is not None
    assert float(reason[1]) >= 1.0
    assert float(reason[2]) >= float(reason[1]) / 2


def test_a_crash_leaves_what_was_measured_and_names_what_is_missing(tmp_path: Path) -> None:
    """The fourth request ends the process; the engine is started again, and the batches are measured."""
    few = ("--prefill", "", "--generate", "2,3", "--batch", "1")
    result = measure(tmp_path, "fake", "-o", "crash_after=4", *QUICK, *few)
    assert {("generate", 2), ("batch", 1)} <= metrics(result)
    reasons = {case.case: case.why for case in result.left_out}
    assert "process ended" in reasons["generate 3"]


def test_an_engine_that_never_answers_is_named_and_the_exit_code_is_2() -> None:
    done = bench("fake", "-o", "crash_after=1", *QUICK, "--generate", "2", "--batch", "1")
    assert done.exit_code == 2
    assert "fake all the engine's process ended" in " ".join(done.stdout.split())


def test_engines_take_turns_and_an_engine_that_cannot_run_is_named(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    arguments = ("--sweep", "fake.tpot=0.001,0.002", "--samples", "4", "--repeat", "2", "--seconds", "1", *ONLY_DECODE)
    done = bench("fake", "lmrs", "--model", "random:llama-3.2-tiny", *arguments, "--output", str(output))
    result = read_result(output)
    rounds = [dict.fromkeys(row.engine for row in result.rows if row.repeat == number) for number in (0, 1)]
    orders = [[label for label in labels if label is not None and label != "lmrs"] for labels in rounds]
    assert orders == [["fake tpot=0.001", "fake tpot=0.002"], ["fake tpot=0.002", "fake tpot=0.001"]]
    batches = [row for row in result.rows if (row.engine, row.metric) == ("fake tpot=0.002", "batch")]
    assert [(row.repeat, row.load, row.load_unit, row.n) for row in batches] == [
        (0, 1, "requests", 2),
        (1, 1, "requests", 2),
    ]
    if result.failures:  # where lm.rs is not installed
        assert done.exit_code == 2
        assert "lmrs all lmrs cannot run here" in " ".join(done.stdout.split())


def test_json_has_the_rows_of_the_frame() -> None:
    done = bench("fake", "-o", "tpot=0.002", *QUICK, *ONLY_DECODE, "--json")
    document = json.loads(done.stdout)
    assert document["answer"]["decode"]["best"] == "fake"
    over = {(row["metric"], row["load"]): row for row in document["rows"] if row["engine"] and row["repeat"] is None}
    assert {("load", None), ("decode", None), ("generate", 8), ("batch", 1), ("memory peak", None)} <= over.keys()
    assert (over["generate", 8]["stage"], over["generate", 8]["unit"]) == ("8 tokens", "s")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("wibble",), "no engine called `wibble`; choose from fake", id="engine"),
        pytest.param(("fake", "-o", "wibble=1"), "no option called `wibble`", id="option"),
        pytest.param(("fake", "--sweep", "tpot=fast,slow"), "option `tpot` is a number, not `fast`", id="sweep"),
        pytest.param(("fake", "--prefill", "x"), "whole numbers from 1", id="sizes"),
        pytest.param(("fake", "--output", "no/b.json"), "the folder of no/b.json does not exist", id="nowhere"),
    ],
)
def test_mistakes_get_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    done = bench(*arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "Traceback" not in done.output
