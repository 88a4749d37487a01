"""The pictures of docs/scenarios.md and of the README, from real runs of an engine that is on this machine.

    make pictures                                       # everything: about half an hour
    python docs/pictures.py --runs /tmp/pictures spike  # one scenario; runs that are in the folder are drawn, not made

Each picture is a part of a run's own report, set on a page by itself and taken by a headless Chromium.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from loadtests.harness.run.host import free_port
from loadtests.harness.run.server_process import PYTHON, ServerProcess

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs/images"
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
SHORT = "--prompt-tokens uniform:16-48 --output-tokens uniform:8-24"  # what two cores can bear
LARGEST = 60_000  # bytes of a picture in docs/scenarios.md
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb"]
REPORT = (1200, 1500)  # pixels of the README's picture
PAGE = (1200, 640)  # of Locust's page


@dataclass(frozen=True, slots=True)
class Picture:
    """A scenario as it is run for its picture, and the part of the report that is shown, by the key of a figure or of a
    heading. `width` in pixels.
    """

    options: str
    part: str
    width: int = 620


PICTURES = {
    "concurrent": Picture(
        "--engine transformers --engine mistralrs --stages 2,4,8,16 --stage-seconds 15 {short}", "throughput"
    ),
    "single": Picture("--engine transformers --engine mistralrs --stage-requests 20", "ttft"),
    "sustained": Picture("--engine mistralrs --stages 8 --stage-seconds 60 {short}", "flow-0"),
    "rate": Picture("--engine mistralrs --rate 0.5-3:0.5 --stage-seconds 20 {short}", "ttft"),
    "capacity": Picture(
        "--engine fake -o ttft=0.02 -o tpot=0.002 -o tpot_per_running=0.0002 --slo tpot_p95=0.01 --by users "
        "--search-range 8-512 --search-seconds 150",
        "capacity",
        900,
    ),
    "spike": Picture("--engine mistralrs --rate 0.5x20+5x4+0.5x46 --stage-seconds 70 {short}", "flow-0"),
    "soak": Picture("--engine mistralrs --stages 4 --stage-seconds 90 --warm-up 15 {short}", "flow-0"),
    "failover": Picture("--engine mistralrs --rate 1 --stage-seconds 70 --at 30 {short}", "flow-0"),
    "replay": Picture("--engine mistralrs --trace {trace} --trace-as longest=600", "flow-0"),
    "memory": Picture(
        "--engine transformers --engine mistralrs --stages 1,4 --prompt-tokens 64,256,512 --output-tokens 8 "
        "--stage-seconds 10",
        "memory",
    ),
    "long_context": Picture(
        "--engine mistralrs --prompt-tokens 250,500,1000,2000 --stage-requests 3 --output-tokens 8", "ttft"
    ),
    "conversation": Picture(
        "--engine mistralrs --stages 4 --turns 6 --stage-seconds 80 --think-time 0.5 --prompt-tokens 48 "
        "--turn-tokens 32 --output-tokens 16",
        "turns",
    ),
    "shared_prefix": Picture(
        "--engine mistralrs --stages 4 --stage-seconds 25 "
        "--shared-prefix-tokens 0,256 --prompt-tokens uniform:288-352 --output-tokens 8",
        "curves",
    ),
    "agents": Picture(
        "--engine mistralrs --stages 1,2,4 --stage-seconds 30 --prompt-tokens 1500 --output-tokens lognormal:150,1,400",
        "tpot",
    ),
    "mixed": Picture(
        "--engine mistralrs --stages 8 --stage-seconds 30 --classes 'chat: weight=3 prompt=uniform:24-64 "
        "output=uniform:8-24 slo=ttft_p95=2; documents: weight=1 prompt=uniform:300-500 output=8 slo=ttft_p95=5'",
        "classes",
        1000,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"default: {', '.join([*PICTURES, 'locust', 'report'])}")
    parser.add_argument("--runs", type=Path, help="where the runs are kept; default: a temporary folder")
    arguments = parser.parse_args()
    if not CHROMIUM:
        sys.exit("there is no Chromium here: `make system` installs it, where that is allowed.")
    runs = (arguments.runs or Path(tempfile.mkdtemp())).absolute()
    for name in arguments.names or [*PICTURES, "locust", "report"]:
        if name == "locust":
            locust_page(IMAGES / "locust.png")
        elif name == "report":
            take(demo(runs / "report"), IMAGES / "report.png", *REPORT)
        else:
            path = IMAGES / f"scenarios/{name}.png"
            path.parent.mkdir(exist_ok=True)
            part_of(report_of(name, runs / name), PICTURES[name], path)
            size = path.stat().st_size
            print(f"{path.relative_to(ROOT)}: {size:,} bytes" + (", TOO LARGE" if size > LARGEST else ""))


def report_of(name: str, folder: Path) -> Path:
    """Run the scenario, unless it is in the folder already; the report's page."""
    if not folder.exists():
        options = shlex.split(
            PICTURES[name].options.format(trace=ROOT / "tests/data/traces/mooncake.jsonl", short=SHORT)
        )
        run([*PYTHON, "-m", "enginebench", "run", name, *options, "--runs", str(folder)])
    return drawn(folder)


def drawn(folder: Path) -> Path:
    """The page of all runs in `folder`, drawn again."""
    page = folder / "page.html"
    found = sorted(str(path.parent) for path in folder.glob("*/meta.json"))
    run([*PYTHON, "-m", "enginebench", "report", *found, "--html", str(page), "--allow-invalid"])
    return page


def demo(folder: Path) -> Path:
    if not folder.exists():
        engines = ["--engine", "transformers", "--engine", "mistralrs"]
        load = ["--stages", "4,8,16", "--stage-seconds", "20", "--output-tokens", "uniform:8-24"]
        run([*PYTHON, "-m", "enginebench", "run", "concurrent", *engines, *load, "--runs", str(folder)])
    return drawn(folder)


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


def height_of(page: Path, width: int) -> int:
    """Pixels that the page takes at this width."""
    measured = page.with_name("measured.html")
    script = "<script>onload = () => document.title = document.body.scrollHeight</script>"
    measured.write_text(page.read_text().replace("</head>", f"{script}</head>"))
    command = [CHROMIUM, *FLAGS, f"--window-size={width},200", "--dump-dom", measured.as_uri()]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    title = re.search(r"<title>(\d+)</title>", said)
    assert title is not None, said[:500]
    return int(title[1])


def take(page: Path | str, path: Path, width: int, height: int, wait: float = 0.0) -> None:
    """A PNG of the page, `wait` seconds of its own time after it was opened."""
    address = page if isinstance(page, str) else page.as_uri()
    command = [CHROMIUM, *FLAGS, f"--window-size={width},{height}", f"--screenshot={path}"]
    command += [f"--virtual-time-budget={wait * 1000:.0f}"] if wait else []
    subprocess.run([*command, address], capture_output=True, check=True, timeout=120)


def locust_page(path: Path) -> None:
    """Locust's page with its tab, while three stages are under way."""
    with tempfile.TemporaryDirectory() as name, ServerProcess("mistralrs", [], None, Path(name) / "log") as server:
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
            "ttft_p95=1,tpot_p95=0.2",
        ]
        command += ["--stages", "2,4,8", "--stage-seconds", "20", "--output-tokens", "16"]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as locust:
            try:
                time.sleep(60)
                urlopen(f"http://127.0.0.1:{port}/", timeout=10).close()
                take(f"http://127.0.0.1:{port}/?tab=tokens", path, *PAGE, wait=8.0)
            finally:
                locust.terminate()


if __name__ == "__main__":
    main()
