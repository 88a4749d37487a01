"""The tools that `client_accuracy.py` compares: how each is installed, started, and what it says of each request.

Every tool runs as its documentation says, with its defaults. guidellm and aiperf live in environments of their own
under the user's cache folder, made with uv at the first run, so that their dependencies cannot meet ours.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import platformdirs

from enginebench.records.files import read_requests
from enginebench.records.metrics import BY_NAME
from validation.program import ROOT

TOKENIZER = platformdirs.user_cache_path("enginebench") / "models" / "smollm2-135m"


class ToolFailed(Exception):
    """A tool could not be installed or did not measure. The message is its own last words."""


@dataclass(frozen=True, slots=True)
class Load:
    users: int
    rate: float  # tokens per second and user, over all of a user's time
    tokens: int  # per answer
    seconds: float


@dataclass(frozen=True, slots=True)
class Seen:
    """A successful request as the tool reports it; seconds."""

    key: str
    ttft: float
    tpot: float  # between the first token and the last, under any name


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    requirement: str | None  # what to install in an environment of its own; None for what runs in ours
    key: Literal["user", "answer", "prompt_id"]  # the field of the truth by which the tool's requests are known
    command: Callable[[str, Load, Path], list[str]]  # of the server's URL, the load, and the folder for its files
    read: Callable[[Path], Iterator[Seen]]

    @property
    def version(self) -> str:
        return self.requirement.rpartition("==")[2] if self.requirement else version(self.name.partition(" ")[0])


def _locust(file: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "locust", "-f", str(ROOT / file), "--headless", *options]


def _enginebench(url: str, load: Load, folder: Path) -> list[str]:
    stage = ("--stages", str(load.users), "--stage-seconds", str(load.seconds))
    answers = ("--output-tokens", str(load.tokens), "--prompt-tokens", "16")
    rest = ("--host", url, "--runs", str(folder), "--run-id", "run", "--stop-timeout", "10", "--only-summary")
    return _locust("loadtests/concurrent.py", *stage, *answers, *rest)


def _read_enginebench(folder: Path) -> Iterator[Seen]:
    """Read the records with the report's formulas."""
    for request in read_requests(folder / "run"):
        ttft, tpot = BY_NAME["ttft"].read(request), BY_NAME["tpot"].read(request)
        if request.outcome == "ok" and ttft is not None and tpot is not None:
            yield Seen(str(request.prompt_id), ttft, tpot)


def _iter_lines(url: str, load: Load, folder: Path) -> list[str]:
    users, time = ("-u", str(load.users), "-r", str(load.users)), ("-t", f"{load.seconds:.0f}s", "-s", "10")
    return _locust("validation/peers/locust_iter_lines.py", *users, *time, "-H", url, "--only-summary")


def _read_iter_lines(folder: Path) -> Iterator[Seen]:
    observed = json.loads((folder / "observed.json").read_bytes())
    for name, ttft, gaps in zip(observed["name"], observed["ttfts"], observed["itls"], strict=True):
        yield Seen(name, ttft, sum(gaps) / len(gaps))


def _guidellm(url: str, load: Load, folder: Path) -> list[str]:
    return [
        *(str(environment(GUIDELLM) / "bin" / "guidellm"), "run", "--disable-progress"),
        *("--backend", f"kind=openai_http,target={url},model=scripted"),
        *("--profile", f"kind=concurrent,streams={load.users}"),
        *("--constraint", f"kind=max_duration,seconds={load.seconds:g}"),
        *("--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}"),
        *("--data", f"kind=synthetic_text,prompt_tokens=8,output_tokens={load.tokens}"),
        *("--output", f"kind=json,path={folder / 'guidellm.json'}"),
    ]


def _read_guidellm(folder: Path) -> Iterator[Seen]:
    """Read its requests. Its inter-token latency is the time from first to last token over the number of gaps."""
    (benchmark,) = json.loads((folder / "guidellm.json").read_text())["benchmarks"]
    for request in benchmark["requests"]["successful"]:
        yield Seen(
            request["response_id"], request["time_to_first_token_ms"] / 1e3, request["inter_token_latency_ms"] / 1e3
        )


def _aiperf(url: str, load: Load, folder: Path) -> list[str]:
    return [
        *(str(environment(AIPERF) / "bin" / "aiperf"), "profile", "-m", "scripted", "--url", url),
        *("--endpoint-type", "chat", "--streaming", "--concurrency", str(load.users)),
        *("--benchmark-duration", f"{load.seconds:g}", "--use-server-token-count", "--tokenizer", str(TOKENIZER)),
        *("--prompt-input-tokens-mean", "8", "--prompt-output-tokens-mean", str(load.tokens)),
        *("--output-artifact-dir", str(folder / "aiperf"), "--export-level", "records"),
        *("--ui-type", "none", "--no-gpu-telemetry", "--no-server-metrics"),
    ]


def _read_aiperf(folder: Path) -> Iterator[Seen]:
    for line in (folder / "aiperf" / "profile_export.jsonl").read_bytes().splitlines():
        request = json.loads(line)
        metrics = request["metrics"]
        if "inter_token_latency" in metrics:
            ttft, tpot = metrics["time_to_first_token"]["value"], metrics["inter_token_latency"]["value"]
            yield Seen(request["metadata"]["x_request_id"], ttft / 1e3, tpot / 1e3)


GUIDELLM = "guidellm==0.8.1"
AIPERF = "aiperf==0.13.0"
TOOLS = {
    "enginebench": Tool("enginebench", None, "prompt_id", _enginebench, _read_enginebench),
    "iter_lines": Tool("locust iter_lines", None, "user", _iter_lines, _read_iter_lines),
    "guidellm": Tool("guidellm", GUIDELLM, "answer", _guidellm, _read_guidellm),
    "aiperf": Tool("aiperf", AIPERF, "user", _aiperf, _read_aiperf),
}


def variables_of(tool: Tool, load: Load, folder: Path) -> dict[str, str]:
    """Return environment variables. No tool may ask a model hub for anything: the tokenizer is on disk."""
    extra = {"ENGINEBENCH_OBSERVED": str(folder / "observed.json"), "ENGINEBENCH_TOKENS": str(load.tokens)}
    if tool.requirement != AIPERF:  # offline, it takes a folder's path for a name on the hub, and fails
        extra["HF_HUB_OFFLINE"] = "1"
    return os.environ | extra


@cache
def environment(requirement: str) -> Path:
    """Return a virtual environment with `requirement` in it, made at first use. Raises `ToolFailed`."""
    folder = platformdirs.user_cache_path("enginebench") / "peers" / requirement.replace("==", "-")
    if (folder / "complete").exists():
        return folder
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is None:
        raise ToolFailed("uv is needed to install it: pip install uv")
    for command in (
        [uv, "venv", "--clear", "--python", sys.executable, str(folder)],
        [uv, "pip", "install", "--python", str(folder / "bin" / "python"), requirement],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ToolFailed(done.stderr.strip())
    (folder / "complete").touch()
    return folder
