"""`enginebench bench` as people run it, on the fake engine, whose delays are known."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from enginebench.cli import app

QUICK = ("--samples", "3", "--repeat", "1", "--warm-up", "0", "--seconds", "1")
ONLY_DECODE = ("--prefill", "", "--generate", "8", "--batch", "1")


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "140", "NO_COLOR": "1"})


def results(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Of each variant, with every sample."""
    done = bench(*arguments, "--output", str(folder / "bench.json"))
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads((folder / "bench.json").read_text())["results"]
    return found


@pytest.mark.alone
def test_known_delays_are_measured_as_they_are(tmp_path: Path) -> None:
    """A busy machine delays single tokens and none comes early: the best sample is within 10 % of the truth, and 6 ms
    in which a process is woken. A rate between two tokens may err to either side, so its median is looked at."""
    delays = ("ttft=0.03", "ttft_per_prompt_token=0.0002", "tpot=0.01", "tpot_per_running=0.002", "load_time=0.3")
    options = [part for delay in delays for part in ("-o", delay)]
    (result,) = results(
        tmp_path,
        *("fake", *options, "--samples", "5", "--repeat", "1", "--warm-up", "1"),
        *("--prefill", "32,512", "--generate", "10,20", "--batch", "1,4"),
    )
    found = {one["measure"]["name"]: [s for each in one["rounds"] for s in each] for one in result["series"]}
    first = 0.03 + 32 * 0.0002
    truth = {
        "prefill 32": first,
        "prefill 512": 0.03 + 512 * 0.0002,
        "generate 10": first + 9 * 0.01,
        "generate 20": first + 19 * 0.01,
        "load": 0.3,
    }
    for name, seconds in truth.items():
        late = 2.0 if name == "load" else 0.1 * seconds + 0.006  # a process starts, too
        assert seconds * 0.999 <= min(found[name]) <= seconds + late, name
    for name, rate in {"batch 1": 32 / (first + 31 * 0.01), "batch 4": 128 / (first + 31 * 0.016)}.items():
        assert 0.85 * rate <= max(found[name]) <= 1.001 * rate, name
    for name, value in {"decode": 0.01, "batch 1 decode": 1 / 0.01, "batch 4 decode": 4 / 0.016}.items():
        assert median(found[name]) == pytest.approx(value, rel=0.25), name
    assert found["memory peak"][0] >= found["prefill 512 memory"][0] >= found["prefill 32 memory"][0] > 1e6
    assert found["memory peak"][0] >= found["memory"][0] > 1e6


@pytest.mark.alone  # 64 tokens must really take an eighth of a second
def test_too_long_a_prefill_is_left_out_and_says_so(tmp_path: Path) -> None:
    (result,) = results(
        tmp_path,
        *("fake", "-o", "ttft_per_prompt_token=0.002", *QUICK, "--seconds", "0.1"),
        *("--prefill", "32,64,512,1024", "--generate", "2", "--batch", "1"),
    )
    assert "prefill 64" in {one["measure"]["name"] for one in result["series"]}
    left_out = {one["case"]: one["why"] for one in result["left_out"]}
    assert list(left_out) == ["prefill 512", "prefill 1024"]
    assert left_out["prefill 512"].startswith("one would take 1 s or more: give --seconds 1")


def test_a_crash_leaves_what_was_measured_and_says_what_is_missing(tmp_path: Path) -> None:
    """The fourth request ends the process; the engine is started again, and the batches are measured."""
    few = ("--prefill", "", "--generate", "2,3", "--batch", "1")
    (result,) = results(tmp_path, "fake", "-o", "crash_after=4", *QUICK, *few)
    assert {"generate 2", "batch 1"} <= {one["measure"]["name"] for one in result["series"]}
    assert {one["case"] for one in result["left_out"]} >= {"generate 3"}
    assert "process ended" in result["left_out"][0]["why"]


def test_an_engine_that_never_answers_is_named_and_the_exit_code_is_2() -> None:
    done = bench("fake", "-o", "crash_after=1", *QUICK, "--generate", "2", "--batch", "1")
    assert done.exit_code == 2
    assert "fake all the engine's process ended" in " ".join(done.stdout.split())


def test_engines_take_turns_and_an_engine_that_cannot_run_is_named(tmp_path: Path) -> None:
    output = tmp_path / "bench.json"
    arguments = ("--sweep", "fake.tpot=0.001,0.002", "--samples", "4", "--repeat", "2", "--seconds", "1", *ONLY_DECODE)
    done = bench("fake", "lmrs", "--model", "random:llama-3.2-tiny", *arguments, "--output", str(output))
    document = json.loads(output.read_text())
    order = [one["order"] for one in document["rounds"]]
    assert order == [["fake tpot=0.001", "fake tpot=0.002", "lmrs"], ["lmrs", "fake tpot=0.002", "fake tpot=0.001"]]
    by_label: dict[str, Any] = {one["label"]: one for one in document["results"]}
    assert [len(one) for one in by_label["fake tpot=0.002"]["series"][-1]["rounds"]] == [1, 1]
    if by_label["lmrs"]["failure"] is not None:  # where lm.rs is not installed
        assert done.exit_code == 2
        assert "lmrs all lmrs cannot run here" in " ".join(done.stdout.split())


def test_json_has_the_rows_of_the_frame() -> None:
    done = bench("fake", "-o", "tpot=0.002", *QUICK, *ONLY_DECODE, "--json")
    document = json.loads(done.stdout)
    assert document["answer"]["best"] == "fake"
    assert {row["metric"] for row in document["rows"]} >= {"load", "decode", "generate 8", "batch 1", "memory peak"}


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
