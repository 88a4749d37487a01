"""The pictures of the documentation: of real runs on this machine, and the plan of a scripted one.

make pictures                                            # everything: about half an hour
python -m docs.pictures --runs /tmp/pictures spike       # one scenario; runs that are in the folder are drawn, not made
python -m docs.pictures queue-full                       # a fault on the dashboards: about two minutes each
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from docs.pictures import faults, scenarios
from docs.pictures.browser import CHROMIUM, take

LARGEST = {"scenarios": 60_000, "grafana": 150_000}  # bytes of a picture, by its folder


def main() -> None:
    every = [*scenarios.PICTURES, "locust", "plan", *faults.FAULTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"default: {', '.join(every)}")
    parser.add_argument("--runs", type=Path, help="where the runs are kept; default: a temporary folder")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(every):
        parser.error(f"no picture called {', '.join(sorted(unknown))}; choose from {', '.join(every)}.")
    if not CHROMIUM:
        sys.exit("there is no Chromium here: `make system` installs it, where that is allowed.")
    runs = (arguments.runs or Path(tempfile.mkdtemp())).absolute()
    failed: list[str] = []
    for name in arguments.names or every:
        if name in faults.FAULTS:
            failed += faults.draw(name, runs / name)
        elif name == "locust":
            scenarios.locust_page(scenarios.IMAGES / "locust.png")
        elif name == "plan":
            take(scenarios.plan(runs / "plan"), scenarios.IMAGES / "plan.png", *scenarios.PLAN)
        else:
            scenarios.draw(name, runs)
    for folder, largest in LARGEST.items():
        for path in sorted((scenarios.IMAGES / folder).glob("*.png")):
            if path.stat().st_size > largest:
                failed.append(f"{path.relative_to(scenarios.ROOT)} has more than {largest:,} bytes")
    sys.exit("\n".join(failed) or None)


if __name__ == "__main__":
    main()
