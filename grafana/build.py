"""The dashboards, as Python.

    python grafana/build.py

writes `grafana/dashboards/*.json`, which are committed, and which Grafana reads. Change the code, not the JSON: each
file in `boards/` is a page, `promql.py` and `load_promql.py` write queries, `panels.py` and `palette.py` define the
look of panels, and `variables.py` the choices at the top of a page.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from grafana.boards import capacity, compare, engine, gpu, load_test
from grafana.boards.board import Board

FOLDER = Path(__file__).parent / "dashboards"
BOARDS: dict[str, Callable[[], Board]] = {
    "load-test": load_test.board,
    "engine": engine.board,
    "gpu": gpu.board,
    "capacity": capacity.board,
    "compare": compare.board,
}


def target(name: str) -> Path:
    return FOLDER / f"{name}.json"


def render(name: str) -> str:
    return json.dumps(BOARDS[name]().build(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in BOARDS:
        target(name).write_text(render(name), encoding="utf-8")
        print(target(name))
