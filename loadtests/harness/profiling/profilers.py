"""The profilers that `--profile` offers: one declaration each, and a function that reads what it wrote.

A profiler gets to a process in one of three ways. It is attached to it for some seconds (`attach`: its command line),
its command goes before the engine's own (`prefix`), or it runs inside the engine's process, as the engine's protocol
asks (`inside`). Everything that it writes is named after `stem`, a path without a suffix.
"""

from __future__ import annotations

import csv
import gzip
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import msgspec

from enginebench.records.formatting import format_bytes, significant
from enginebench.records.profile import Hot
from enginebench.settings.schema import UserMistake
from loadtests.harness.profiling.stacks import MOST, Stacks, flame_graph, hottest, parse, parse_perf

READ_TIMEOUT = 300.0  # seconds for a profiler's own program to sum up what it recorded
RATE = "99"  # samples a second, and no divisor of what programs do
GPU_ONLY = "an NVIDIA GPU, and there is none here"


class NoProfile(Exception):
    """The profiler recorded nothing that can be read. One sentence."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read: `total` seconds or bytes, and the sentences to put below the table."""

    hot: tuple[Hot, ...]
    total: float
    unit: Literal["s", "B"] = "s"
    facts: tuple[str, ...] = ()
    stacks: Stacks | None = None  # for a flame graph


@dataclass(frozen=True, slots=True)
class Profiler:
    """`languages` are those of the engines that it can profile, `modules` what must be importable beside it."""

    name: str
    shows: str
    install: str
    read: Callable[[Path], Seen]
    program: str | None = None
    module: str | None = None
    attach: Callable[[str, int, float, Path], list[str]] | None = None  # program, process, seconds, stem
    prefix: Callable[[str, Path], list[str]] | None = None  # program, stem
    inside: bool = False
    languages: tuple[str, ...] = ("python", "rust", "c++")
    of_server: bool = False
    on_torch: bool = False
    on_gpu: bool = False
    longest: float = field(default=600.0)  # seconds: more would take too long to write and to read

    @property
    def path(self) -> str:
        """Of its program, which may be in this environment and not on PATH."""
        return _program(str(self.program)) or str(self.program)

    def missing(self) -> str | None:
        """One sentence with the way out, where it is not installed or cannot work here."""
        if self.program is not None and _program(self.program) is None:
            return f"{self.name} is not installed (no program `{self.program}`): {self.install}"
        if self.module is not None and find_spec(self.module) is None:
            return f"{self.name} is not installed (no package `{self.module}`): {self.install}"
        if self.on_gpu and not Path("/dev/nvidiactl").exists():
            return f"{self.name} needs {GPU_ONLY}."
        return None

    def unfit(self, engine: str, language: str, on_torch: bool) -> str | None:
        """Why it does not suit an engine."""
        fitting = [one.name for one in PROFILERS if language in one.languages and (on_torch or not one.on_torch)]
        if self.name in fitting:
            return None
        kind = "engines on torch" if self.on_torch else f"engines in {' and '.join(self.languages)}"
        others = f"choose from {', '.join(fitting)}" if fitting else "it has no process of its own that could be"
        return f"{self.name} profiles {kind}, and {engine} is none: {others}."


def profiler(name: str) -> Profiler:
    """Raises `UserMistake` with the choices, and for one that is missing."""
    found = next((one for one in PROFILERS if one.name == name), None)
    if found is None:
        choices = "; ".join(f"{one.name}: {one.shows}" for one in PROFILERS)
        raise UserMistake(f"no profiler called `{name}`; choose from {choices}.")
    if (missing := found.missing()) is not None:
        raise UserMistake(missing)
    return found


def _program(name: str) -> str | None:
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.is_file() else shutil.which(name)


def _output(command: Sequence[str]) -> str:
    """Raises `NoProfile`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=READ_TIMEOUT, errors="replace")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoProfile(f"{command[0]} did not sum up what it recorded: {error}.") from None
    if done.returncode != 0:
        last = next(iter(reversed(done.stderr.strip().splitlines())), "it says nothing")
        raise NoProfile(f"{command[0]} cannot read what it recorded: {last.rstrip('.')}.")
    return done.stdout


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        raise NoProfile(f"it wrote no {path.name} ({error.strerror}).") from None


def _of_stacks(stacks: Stacks, rate: float | None = None) -> Seen:
    """Samples at `rate` a second; without one, bytes."""
    samples = sum(stacks.values())
    if not samples:
        raise NoProfile("it recorded nothing: the process had nothing to do.")
    if rate is None:
        return Seen(hottest(stacks), samples, "B", (f"{format_bytes(samples)} at the peak.",), stacks)
    return Seen(hottest(stacks), samples / rate, "s", (f"{samples:,.0f} samples at {rate:g} Hz.",), stacks)


def _py_spy(stem: Path) -> Seen:
    return _of_stacks(parse(_text(stem.with_suffix(".txt"))), float(RATE))


def _perf(stem: Path) -> Seen:
    data = stem.with_suffix(".data")
    if not data.is_file():
        raise NoProfile("perf recorded nothing: may it here? (`sysctl kernel.perf_event_paranoid` must be 2 or less.)")
    script = _output(["perf", "script", "-F", "ip,sym", "--no-inline", "-i", str(data)])
    return _of_stacks(parse_perf(script), float(RATE))


def _memray(stem: Path) -> Seen:
    return _of_stacks(parse(_text(stem.with_suffix(".txt"))))


def _heaptrack(stem: Path) -> Seen:
    raw, interpreted, stacks = (stem.with_suffix(suffix) for suffix in (".raw", ".heaptrack.gz", ".txt"))
    if not raw.is_file():
        raise NoProfile("heaptrack recorded nothing.")
    with raw.open("rb") as source, gzip.open(interpreted, "wb") as target:
        done = subprocess.run([str(_heaptrack_file("libexec/heaptrack_interpret"))], stdin=source, capture_output=True)
        target.write(done.stdout)
    raw.unlink()
    command = ["heaptrack_print", "-f", str(interpreted), "--flamegraph-cost-type", "peak", "-F", str(stacks)]
    _output([*command, "-p", "0", "-a", "0", "-T", "0", "-l", "0"])
    return _of_stacks(parse(_text(stacks)))


def _heaptrack_file(name: str) -> Path:
    return Path(_program("heaptrack") or "heaptrack").parent.parent / "lib" / "heaptrack" / name


def _beside_output(command: Sequence[str]) -> list[str]:
    """What the profiler prints goes to standard error: an engine's standard output is its protocol's."""
    shell, flag = "/bin/sh", "-c"
    return [shell, flag, 'exec 9>&1 1>&2; exec "$@"', "sh", *command, shell, flag, 'exec "$@" 1>&9 9>&-', "sh"]


def _torch(stem: Path) -> Seen:
    """The kernels' time on a GPU, else the operators' own on the CPU: what is inside an operator is not its own."""
    try:
        with gzip.open(f"{stem}.trace.json.gz") as file:
            events = msgspec.json.decode(file.read())["traceEvents"]
        tokens = msgspec.json.decode(stem.with_suffix(".json").read_bytes())["tokens"]
    except (OSError, ValueError, KeyError) as error:
        raise NoProfile(f"torch wrote no trace that can be read ({type(error).__name__}).") from None
    spans = [event for event in events if event.get("ph") == "X"]
    kernels = [span for span in spans if span.get("cat") == "kernel"]
    counted = kernels or [span for span in spans if span.get("cat") == "cpu_op"]
    own, calls = Counter[str](), Counter[str]()
    for name, seconds in ((one["name"], one["dur"] / 1e6) for one in kernels) if kernels else _own_times(counted):
        own[name] += seconds  # type: ignore[assignment]
        calls[name] += 1
    total = sum(own.values())
    if not total:
        raise NoProfile("torch computed nothing while it was profiled.")
    hot = tuple(
        Hot(name, seconds / total, calls=calls[name] / tokens if tokens else None)
        for name, seconds in own.most_common(MOST)
    )
    launches = [span for span in spans if "LaunchKernel" in span["name"] or "GraphLaunch" in span["name"]]
    what, count = ("launches", len(launches)) if kernels else ("calls of operators", len(counted))
    per_token = f"{significant(count / tokens)} {what} per token" if tokens else f"{count:,} {what}, and no token"
    return Seen(hot, total, "s", (f"{per_token}; {tokens:,} tokens were generated meanwhile.",))


def _own_times(spans: Iterable[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """Name and seconds of each, without those of the spans inside it, on its thread."""
    threads: dict[Any, list[list[Any]]] = {}
    for span in sorted(spans, key=lambda one: (one["ts"], -one["dur"])):
        stack = threads.setdefault(span["tid"], [])
        while stack and stack[-1][0] <= span["ts"]:
            yield stack[-1][1], max(stack.pop()[2], 0.0) / 1e6
        if stack:
            stack[-1][2] -= span["dur"]
        stack.append([span["ts"] + span["dur"], span["name"], span["dur"]])
    for stack in threads.values():
        yield from ((name, max(micros, 0.0) / 1e6) for _, name, micros in stack)


def _nsys(stem: Path) -> Seen:
    command = ["nsys", "stats", "--report", "cuda_gpu_kern_sum", "--format", "csv", "--force-export=true"]
    return _of_kernels(_output([*command, f"{stem}.nsys-rep"]), "Name", "Total Time (ns)", "Instances")


def _ncu(stem: Path) -> Seen:
    command = ["ncu", "--import", f"{stem}.ncu-rep", "--csv", "--page", "raw", "--metrics", "gpu__time_duration.sum"]
    return _of_kernels(_output([*command, "--print-units", "base"]), "Kernel Name", "gpu__time_duration.sum", None)


def _of_kernels(text: str, name: str, nanoseconds: str, count: str | None) -> Seen:
    """From a CSV table with lines of prose above it."""
    lines = text.splitlines()
    header = next((at for at, line in enumerate(lines) if name in line and nanoseconds in line), None)
    if header is None:
        raise NoProfile("no kernel ran on a GPU while it was profiled.")
    own, calls = Counter[str](), 0
    for row in csv.DictReader(lines[header:]):
        try:
            own[row[name]] += float(row[nanoseconds].replace(",", "")) / 1e9  # type: ignore[assignment]
            calls += int(row[count].replace(",", "")) if count else 1
        except (ValueError, AttributeError):  # a row of units
            continue
    total = sum(own.values())
    if not total:
        raise NoProfile("no kernel ran on a GPU while it was profiled.")
    hot = tuple(Hot(kernel, seconds / total) for kernel, seconds in own.most_common(MOST))
    return Seen(hot, total, "s", (f"{calls:,} launches.",))


OF_EXTRA = "pip install 'enginebench[profile]'"
NSIGHT = "install it from https://developer.nvidia.com/nsight-"

PROFILERS: tuple[Profiler, ...] = (
    Profiler(
        "py-spy",
        "Python functions by time",
        OF_EXTRA,
        _py_spy,
        program="py-spy",
        attach=lambda program, pid, seconds, stem: [
            *(program, "record", "--pid", str(pid), "--duration", f"{seconds:.0f}", "--rate", RATE),
            *("--format", "raw", "--function", "--output", f"{stem}.txt"),
        ],
        languages=("python",),
        of_server=True,
    ),
    Profiler(
        "torch",
        "operators by time on a CPU, kernels on a GPU, and launches per token",
        "pip install 'enginebench[transformers]'",
        _torch,
        module="torch",
        inside=True,
        languages=("python",),
        on_torch=True,
        longest=3.0,
    ),
    Profiler(
        "perf",
        "native functions by time, such as those of Rust engines",
        "apt-get install linux-perf (Ubuntu: linux-tools-generic)",
        _perf,
        program="perf",
        attach=lambda program, pid, seconds, stem: [
            *(program, "record", "--freq", RATE, "-g", "--pid", str(pid), "--output", f"{stem}.data"),
            *("--", "sleep", f"{seconds:.0f}"),
        ],
    ),
    Profiler(
        "memray",
        "memory of Python engines at its peak, by the function that allocated it",
        OF_EXTRA,
        _memray,
        module="memray",
        inside=True,
        languages=("python",),
    ),
    Profiler(
        "heaptrack",
        "memory of native engines at its peak, by the function that allocated it",
        "apt-get install heaptrack",
        _heaptrack,
        program="heaptrack",
        prefix=lambda _, stem: [
            *("env", f"LD_PRELOAD={_heaptrack_file('libheaptrack_preload.so')}"),  # its own script writes to the pipe
            f"DUMP_HEAPTRACK_OUTPUT={stem}.raw",
        ],
        languages=("rust", "c++"),
    ),
    Profiler(
        "nsys",
        "CUDA kernels by time, by Nsight Systems",
        f"{NSIGHT}systems",
        _nsys,
        program="nsys",
        prefix=lambda program, stem: _beside_output(
            [
                *(program, "profile", "--output", str(stem), "--force-overwrite=true", "--trace=cuda,nvtx"),
                *("--sample=none", "--cpuctxsw=none", "--trace-fork-before-exec=true"),
            ]
        ),
        on_gpu=True,
    ),
    Profiler(
        "ncu",
        "single CUDA kernels by time, by Nsight Compute, which replays each",
        f"{NSIGHT}compute",
        _ncu,
        program="ncu",
        prefix=lambda program, stem: _beside_output(
            [
                *(program, "--export", str(stem), "--force-overwrite", "--target-processes", "all"),
                *("--set", "basic", "--launch-count", "500"),
            ]
        ),
        on_gpu=True,
    ),
)


def draw(seen: Seen, stem: Path, title: str) -> str | None:
    """The flame graph's file name; `None` where there are no stacks."""
    if seen.stacks is None:
        return None
    picture = stem.with_suffix(".svg")
    picture.write_text(flame_graph(seen.stacks, title))
    return picture.name
