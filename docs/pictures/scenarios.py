"""The pictures of docs/scenarios.md and of the README, from real runs of an engine that is on this machine.

Each picture is a part of a run's own report, set on a page by itself, or Locust's own page.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.request import urlopen

from docs.pictures.browser import height_of, take
from loadtests.harness.command.server_process import PYTHON, ServerProcess
from loadtests.harness.run.host import free_port
from validation.plan.batching_server import Asked, BatchingServer, users, write_run

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"
PAGE = (1200, 1000)  # of Locust's page
PLAN = (1280, 960)  # of the plan, down to its sliders


@dataclass(frozen=True, slots=True)
class Picture:
    """A scenario as it is run for its picture, and the part of the report that is shown, by the key of a figure or of a
    heading. `width` in pixels.
    """

    options: str
    part: str
    width: int = 620


# Delays like those of a small model on a GPU: prefill by prompt length, slower with each request that runs.
DELAYS = [
    *("ttft=0.04", "ttft_per_prompt_token=0.0004", "tpot=0.008", "tpot_per_running=0.0008"),
    *("concurrency=16", "jitter=0.2"),
]
FAKE = " ".join(["--engine fake", *(f"-o {delay}" for delay in DELAYS)])
REAL = "--engine transformers --engine mistralrs --model random:llama-3.2-tiny"
SHORT = "--prompt-tokens uniform:16-48 --output-tokens uniform:8-24"  # what two cores can bear
PICTURES = {
    "concurrent": Picture(f"{REAL} --stages 1,2,4,8 --stage-seconds 12 {SHORT}", "throughput"),
    "single": Picture(f"{FAKE} --stage-requests 30", "ttft"),
    "sustained": Picture(f"{FAKE} --stages 16 --stage-seconds 60", "flow-0"),
    "rate": Picture(f"{FAKE} --rate 4-20:4 --stage-seconds 15", "ttft"),
    "capacity": Picture(
        f"{FAKE} --slo tpot_p95=0.015 --by users --output-tokens uniform:8-24 --search-range 2-64 --search-seconds 240",
        "capacity",
        760,
    ),
    "spike": Picture(f"{FAKE} --rate 5x20+40x5+5x35 --stage-seconds 60", "flow-0"),
    "soak": Picture(f"{FAKE} --stages 12 --stage-seconds 120 --warm-up 15", "flow-0"),
    "failover": Picture(f"{FAKE} -o load_time=6 --rate 5 --stage-seconds 60 --at 25", "flow-0"),
    "replay": Picture(f"{FAKE} --trace {{trace}}", "flow-0"),
    "memory": Picture(f"{REAL} --stages 1,2 --prompt-tokens 64,512 --output-tokens 8 --stage-seconds 8", "memory"),
    "long_context": Picture(f"{FAKE} --prompt-tokens 1000,4000,8000,16000 --stage-requests 8", "ttft"),
    "conversation": Picture(f"{FAKE} --stages 8 --turns 8 --stage-seconds 45 --think-time 0.5", "turns"),
    "shared_prefix": Picture(f"{FAKE} --stages 8 --stage-seconds 25", "curves"),
    "agents": Picture(f"{FAKE} --for-context 1000000 --stages 1,2,4,8 --stage-seconds 30 --think-time 0.5", "tpot"),
    "mixed": Picture(f"{FAKE} --stages 12 --stage-seconds 60", "classes", 1060),
}


def draw(name: str, runs: Path) -> None:
    """Run a scenario, unless it is in `runs`, and draw its part of the report."""
    path = IMAGES / f"scenarios/{name}.png"
    path.parent.mkdir(exist_ok=True)
    part_of(report_of(name, runs / name), PICTURES[name], path)


def report_of(name: str, folder: Path) -> Path:
    """Run the scenario, unless it is in the folder already; the report's page."""
    if not folder.exists():
        options = shlex.split(PICTURES[name].options.format(trace=recorded(folder.parent)))
        run([*PYTHON, "-m", "enginebench", "run", name, *options, "--runs", str(folder)])
    return drawn(folder)


def recorded(folder: Path) -> Path:
    """A trace of a minute in Mooncake's format, in bursts."""
    folder.mkdir(parents=True, exist_ok=True)
    trace, rng, at = folder / "trace.jsonl", Random(1), 0.0
    with trace.open("w") as file:
        while at < 60_000:
            lengths = {"input_length": rng.randint(40, 600), "output_length": rng.randint(8, 80)}
            file.write(
                json.dumps({"timestamp": round(at), **lengths, "hash_ids": [rng.getrandbits(31), rng.getrandbits(31)]})
                + "\n"
            )
            at += rng.gammavariate(0.25, 4) * 150
    return trace


def drawn(folder: Path) -> Path:
    """The page of all runs in `folder`, drawn again."""
    page = folder / "page.html"
    found = sorted(str(path.parent) for path in folder.glob("*/meta.json"))
    run([*PYTHON, "-m", "enginebench", "report", *found, "--output", str(page), "--allow-invalid"])
    return page


def plan(folder: Path) -> Path:
    """The page of a plan for the scripted server of docs/capacity-planning.md."""
    if not folder.exists():
        server = BatchingServer(base=0.03, per_running=0.002, per_token=0.0005, slots=16, jitter=0.05)
        write_run(folder, server, users(2, 4, 8, 12, 16, 20, 24), Asked(), window=240.0)
    page = folder / "plan.html"
    peak = ["--peak", "60", "--slo", "ttft_p95=0.3,tpot_p95=0.08", "--price", "0.8"]
    run([*PYTHON, "-m", "enginebench", "plan", str(folder), *peak, "--output", str(page)])
    return page


def run(command: list[str]) -> None:
    """Exit code 1 is an objective that was missed, 2 a finding as well: a picture may show both."""
    subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)


def part_of(page: Path, picture: Picture, path: Path) -> None:
    """One figure, or the section of one heading, on a page of its own."""
    html = page.read_text()
    style = re.search(r"<style>.*?</style>", html, re.S)
    figure = re.search(rf'<figure id="{picture.part}">.*?</figure>', html, re.S)
    section = re.search(rf'<section>\s*<h2 id="{picture.part}">.*?</section>', html, re.S)
    found = figure or section
    if style is None or found is None:
        sys.exit(f"{page} has no part called {picture.part}.")
    part = re.sub(r"<details>.*?</details>", "", found[0], flags=re.S)
    own = "<style>body { padding: 20px 24px; } section { margin: 0; } :root { color-scheme: light; }</style>"
    alone = page.with_name(f"{picture.part}.html")
    alone.write_text(
        f"<!doctype html><html><head><meta charset='utf-8'>{style[0]}{own}</head><body>{part}</body></html>"
    )
    take(alone, path, picture.width, height_of(alone, picture.width))


def locust_page(path: Path) -> None:
    """Locust's page with its tab, while three stages are under way."""
    with tempfile.TemporaryDirectory() as name, ServerProcess("fake", DELAYS, None, Path(name) / "log") as server:
        server.wait_until_ready(lambda _: None)
        port = free_port()
        command = [*PYTHON, "-m", "locust", "-f", "loadtests/concurrent.py", "--host", server.url, "--runs", name]
        command += [
            "--web-host",
            "127.0.0.1",
            "--web-port",
            str(port),
            "--autostart",
            "--slo",
            "ttft_p95=0.3,tpot_p95=0.02",
        ]
        command += ["--stages", "4,8,32", "--stage-seconds", "15"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as locust:
            try:
                time.sleep(10)
                for _ in range(30):  # somebody who looks at the page: only then its stages are judged
                    urlopen(f"http://127.0.0.1:{port}/stats/requests", timeout=10).close()
                    time.sleep(1.5)
                take(f"http://127.0.0.1:{port}/", path, *PAGE, wait=8.0)
            finally:
                locust.terminate()
