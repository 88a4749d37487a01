"""The pictures of the documentation, of real runs on this machine: each is the first chart of a run's report.

make pictures                                        # all of them: about half an hour
python -m docs.pictures --runs /tmp/pictures spike   # one scenario; runs that are in the folder are drawn, not made

A headless Chromium photographs charts and pages. The pictures of the dashboards in docs/images/grafana/ are not made
here.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from urllib.request import urlopen

from enginebench.settings.system import free_port
from loadtests.harness.command.server_process import PYTHON, ServerProcess
from validation.plan.batching_server import Asked, BatchingServer, users, write_run

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
LOCUST_PAGE, PLAN_PAGE = (1200, 440), (980, 1195)  # pixels

# Delays like those of a small model on a GPU: prefill by prompt length, slower with each request that runs.
DELAYS = (
    *("ttft=0.04", "ttft_per_prompt_token=0.0004", "tpot=0.008", "tpot_per_running=0.0008"),
    *("concurrency=16", "jitter=0.2"),
)
FAKE = " ".join(["--engine fake", *(f"-o {delay}" for delay in DELAYS)])
SHORT = "--output-tokens uniform:8-24"
REAL = "--engine transformers --engine mistralrs --model random:llama-3.2-tiny"
PICTURES = {
    "concurrent": f"{REAL} --stages 1,2,4,8 --stage-seconds 12 --prompt-tokens uniform:16-48 {SHORT}",
    "single": f"{FAKE} --stage-requests 30",
    "sustained": f"{FAKE} --stages 16 --stage-seconds 60",
    "rate": f"{FAKE} --rate 4-20:4 --stage-seconds 15",
    "capacity": f"{FAKE} --slo tpot_p95=0.015 --search-range 2-64 --search-seconds 240 {SHORT}",
    "spike": f"{FAKE} --rate 5x20+40x5+5x35 --stage-seconds 60",
    "soak": f"{FAKE} --stages 12 --stage-seconds 120 --warm-up 15",
    "failover": f"{FAKE} -o load_time=6 --rate 5 --stage-seconds 100",
    "replay": f"{FAKE} --trace {{trace}}",
    "memory": f"{REAL} --stages 1,2 --prompt-tokens 64,512 --output-tokens 8 --stage-seconds 8",
    "long_context": f"{FAKE} --prompt-tokens 1000,4000,8000,16000 --stage-requests 8",
    "conversation": f"{FAKE} --stages 8 --turns 8 --stage-seconds 45 --think-time 0.5",
    "shared_prefix": f"{FAKE} --stages 8 --stage-seconds 25",
    "agents": f"{FAKE} --stages 1,2,4,8 --stage-seconds 30 --think-time 0.5",
}


def main() -> None:
    every = [*PICTURES, "locust", "plan"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"default: {', '.join(every)}")
    parser.add_argument("--runs", type=Path, help="where the runs are kept; default: a temporary folder")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(every):
        parser.error(f"no picture called {', '.join(sorted(unknown))}; choose from {', '.join(every)}.")
    runs = (arguments.runs or Path(tempfile.mkdtemp())).absolute()
    for name in arguments.names or every:
        if name in PICTURES:
            scenario(name, runs / name)
        elif name == "plan":
            plan(runs / name)
        else:
            locust()


def scenario(name: str, runs: Path) -> None:
    """Run it, unless its runs are there, and draw the first chart of their report."""
    if not runs.exists():
        options = shlex.split(PICTURES[name].format(trace=trace(runs.parent)))
        enginebench("run", name, *options, "--runs", str(runs))
    chart = runs / "chart.svg"
    enginebench("report", str(runs), "--output", str(chart), "--allow-invalid")
    size = re.search(r'width="(\d+)" height="(\d+)"', chart.read_text())
    assert size is not None, f"{chart} has no size"
    photograph(chart.as_uri(), IMAGES / f"scenarios/{name}.png", int(size[1]), int(size[2]))


def trace(folder: Path) -> Path:
    """Write a trace of a minute in Mooncake's format, in bursts."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, at, lines = Random(1), 0.0, []
    while at < 60_000:
        lengths = {"input_length": rng.randint(40, 600), "output_length": rng.randint(8, 80)}
        hashes = [rng.getrandbits(31) for _ in range(math.ceil(lengths["input_length"] / 512))]
        lines.append(json.dumps({"timestamp": round(at), **lengths, "hash_ids": hashes}))
        at += rng.gammavariate(0.25, 4) * 150
    path = folder / "trace.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def plan(runs: Path) -> None:
    """Photograph the plan of docs/capacity-planning.md."""
    if not runs.exists():
        server = BatchingServer(base=0.03, per_running=0.002, per_token=0.0005, slots=16, jitter=0.05)
        write_run(runs, server, users(2, 4, 8, 12, 16, 20, 24), Asked(), window=240.0)
    page = runs / "plan.html"
    peak = ("--peak", "60", "--slo", "ttft_p95=300ms", "--price", "0.71")
    enginebench("plan", str(runs), *peak, "--output", str(page))
    photograph(page.as_uri(), IMAGES / "plan.png", *PLAN_PAGE)


def locust() -> None:
    """Photograph Locust's page while three stages are under way."""
    with tempfile.TemporaryDirectory() as name, ServerProcess("fake", DELAYS, None, Path(name) / "log") as server:
        server.wait_until_ready(lambda _: None)
        port = free_port()
        command = [*PYTHON, "-m", "locust", "-f", "loadtests/concurrent.py", "--host", server.url, "--runs", name]
        command += ["--web-host", "127.0.0.1", "--web-port", str(port), "--autostart"]
        command += ["--slo", "ttft_p95=0.3,tpot_p95=0.02", "--stages", "4,8,32", "--stage-seconds", "15"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                time.sleep(10)
                for _ in range(30):  # stages are judged only while the page is open
                    urlopen(f"http://127.0.0.1:{port}/stats/requests", timeout=10).close()
                    time.sleep(1.5)
                photograph(f"http://127.0.0.1:{port}/", IMAGES / "locust.png", *LOCUST_PAGE, wait=8.0)
            finally:
                process.terminate()


def enginebench(*words: str) -> None:
    """Exit codes 1 and 2 are missed objectives and findings, which a picture may show."""
    subprocess.run([*PYTHON, "-m", "enginebench", *words], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)


def photograph(address: str, path: Path, width: int, height: int, wait: float = 0.0) -> None:
    """Write a PNG of the page, `wait` seconds of its own time after it was opened."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("there is no Chromium here: `make system` installs it, if that is allowed.")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb"]
    flags += [f"--virtual-time-budget={wait * 1000:.0f}"] if wait else []
    command = [chromium, *flags, f"--window-size={width},{height}", f"--screenshot={path}", address]
    subprocess.run(command, capture_output=True, check=True, timeout=120)


if __name__ == "__main__":
    main()
