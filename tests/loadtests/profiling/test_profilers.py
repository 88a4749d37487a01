"""What `--profile` offers: command lines, what is read, and real profilers where they are installed."""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enginebench.settings.schema import UserMistake
from loadtests.harness.profiling import profilers
from loadtests.harness.profiling.profilers import PROFILERS, NoProfile, profiler
from loadtests.harness.profiling.recording import Recording

BY_NAME = {one.name: one for one in PROFILERS}
SPIN = "def hot_function():\n    for _ in range(10**6): pass\nprint('on', flush=True)\nwhile True: hot_function()\n"
STEM = Path("/runs/x/profile/it")


@contextmanager
def spinning() -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-S", "-c", SPIN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def recording(name: str, folder: Path, seconds: float = 2) -> Recording:
    (folder / "profile").mkdir()
    return Recording(BY_NAME[name], folder, "mine", "engine", "4 users", seconds)


def test_py_spy_sees_where_a_process_spends_its_time(tmp_path: Path) -> None:
    if BY_NAME["py-spy"].missing():
        pytest.skip("py-spy is not installed")
    one = recording("py-spy", tmp_path)
    with spinning() as pid:
        one.attach(pid)
    found = one.read()
    if found.failure and "ermission" in found.failure:
        pytest.skip("this machine lets no process be attached to")
    assert found.failure is None
    assert found.hot[0].name == "hot_function (<string>)"
    assert found.hot[0].share > 0.5
    assert found.picture == "py-spy-engine.svg"
    assert "hot_function" in (tmp_path / "profile" / found.picture).read_text()
    assert set(found.files) == {"py-spy-engine.log", "py-spy-engine.txt"}


def test_perf_counts_native_functions(tmp_path: Path) -> None:
    if BY_NAME["perf"].missing():
        pytest.skip("perf is not installed")
    one = recording("perf", tmp_path)
    with spinning() as pid:
        one.attach(pid)
    found = one.read()
    if found.failure and one.why:
        pytest.skip("perf may not record here")
    assert found.failure is None
    assert sum(hot.share for hot in found.hot) == pytest.approx(1, abs=0.3)  # the largest 30 of them
    assert 0 < found.total < 60


def test_a_profiler_that_fails_says_why(tmp_path: Path) -> None:
    one = recording("perf", tmp_path)
    one.why = "perf failed: no permission."
    assert one.read().failure == "perf failed: no permission."
    one.why = None
    assert "perf recorded nothing" in str(one.read().failure)


def test_what_is_not_installed_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profilers, "_program", lambda name: None)
    with pytest.raises(UserMistake, match=r"^perf is not installed \(no program `perf`\): apt-get install linux-perf"):
        profiler("perf")
    monkeypatch.setattr(profilers, "find_spec", lambda name: None)
    with pytest.raises(UserMistake, match=r"no package `memray`\): pip install 'enginebench\[profile\]'$"):
        profiler("memray")


def test_a_word_that_is_no_profiler_lists_them_all() -> None:
    with pytest.raises(UserMistake) as raised:
        profiler("gprof")
    assert all(f"{one.name}: {one.shows}" in str(raised.value) for one in PROFILERS)


@pytest.mark.parametrize(
    ("name", "language", "on_torch", "fits"),
    [
        pytest.param("py-spy", "python", False, True, id="Python functions of a Python engine"),
        pytest.param("py-spy", "rust", False, False, id="a Rust engine has no Python functions"),
        pytest.param("torch", "python", True, True, id="operators of an engine on torch"),
        pytest.param("torch", "python", False, False, id="an engine without torch has no operators"),
        pytest.param("perf", "c++", False, True, id="perf sees every process"),
        pytest.param("heaptrack", "python", False, False, id="memory of Python engines is memray's"),
    ],
)
def test_a_profiler_suits_an_engine_or_says_which_do(name: str, language: str, on_torch: bool, fits: bool) -> None:
    unfit = BY_NAME[name].unfit("it", language, on_torch)
    assert (unfit is None) is fits
    assert fits or "choose from" in str(unfit)


def test_nsight_goes_before_the_engines_command_and_keeps_off_its_standard_output() -> None:
    """Unit-tested only: Nsight needs an NVIDIA GPU. Its place is taken by `echo`, which prints before it runs."""
    for name in ("nsys", "ncu"):
        make = BY_NAME[name].prefix
        assert make is not None
        prefix = make(name, STEM)
        assert str(STEM) in prefix
        printing = ["/bin/sh", "-c", 'echo noise; exec "$@"', "sh"]
        at, end = prefix.index(name), len(prefix) - 4  # behind it, the shell that gives the engine its output back
        command = [*prefix[:at], *printing, *prefix[end:], "/bin/echo", "protocol"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("protocol\n", "noise\n")


def test_nsight_systems_sums_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "Processing [x.sqlite] with [cuda_gpu_kern_sum.py]...\n\n"
        "Time (%),Total Time (ns),Instances,Avg (ns),Name\n75.0,3000000,30,100000.0,gemm<float>\n"
        '25.0,1000000,10,100000.0,"softmax, rows"\n'
    )
    commands: list[list[str]] = []

    def output(command: list[str]) -> str:
        commands.append(command)
        return said

    monkeypatch.setattr(profilers, "_output", output)
    seen = BY_NAME["nsys"].read(STEM)
    assert [(hot.name, hot.share) for hot in seen.hot] == [("gemm<float>", 0.75), ("softmax, rows", 0.25)]
    assert (seen.total, seen.facts) == (0.004, ("40 launches.",))
    assert commands[0][-1] == f"{STEM}.nsys-rep"
    monkeypatch.setattr(profilers, "_output", lambda command: "==PROF== none\n")
    with pytest.raises(NoProfile, match="no kernel ran on a GPU"):
        BY_NAME["ncu"].read(STEM)


def test_operators_have_the_time_that_is_not_that_of_others_inside_them(tmp_path: Path) -> None:
    spans = [
        *(("linear", 0, 100, 1), ("addmm", 10, 80, 1), ("relu", 120, 40, 1)),
        ("linear", 0, 50, 2),  # another thread
    ]
    events = [{"ph": "X", "cat": "cpu_op", "name": n, "ts": ts, "dur": dur, "tid": tid} for n, ts, dur, tid in spans]
    with gzip.open(tmp_path / "it.trace.json.gz", "wt") as file:
        json.dump({"traceEvents": events}, file)
    (tmp_path / "it.json").write_text('{"tokens": 2}')
    seen = BY_NAME["torch"].read(tmp_path / "it")
    assert {hot.name: (round(hot.share * 190), hot.calls) for hot in seen.hot} == {
        "addmm": (80, 0.5),
        "linear": (70, 1.0),
        "relu": (40, 0.5),
    }
    assert seen.facts[0].startswith("2.00 calls of operators per token")


def test_kernels_count_where_there_are_some(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 1000, "tid": 1},
        *({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": t, "dur": 5, "tid": 1} for t in (1, 20)),
        *({"ph": "X", "cat": "kernel", "name": "sgemm", "ts": t, "dur": 30, "tid": 7} for t in (10, 50)),
    ]
    with gzip.open(tmp_path / "it.trace.json.gz", "wt") as file:
        json.dump({"traceEvents": events}, file)
    (tmp_path / "it.json").write_text('{"tokens": 1}')
    seen = BY_NAME["torch"].read(tmp_path / "it")
    assert [(hot.name, hot.calls) for hot in seen.hot] == [("sgemm", 2.0)]
    assert seen.total == pytest.approx(60e-6)
    assert seen.facts[0].startswith("2.00 launches per token")
