"""The page of a plan as a file: the template with its data. Nothing that simulates is imported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from records.files import write_atomically

TEMPLATE = Path(__file__).with_name("plan.html")
EXAMPLE_DATA = Path(__file__).with_name("example.json")
"""Of the plan in docs/capacity-planning.md; `python -m docs.pictures plan` writes it."""


def write_page(data: Mapping[str, Any], path: Path) -> Path:
    """`data` is that of `page_data`. Raises `OSError`."""
    text = json.dumps(data, allow_nan=False).replace("</", "<\\/")
    write_atomically(path, TEMPLATE.read_text(encoding="utf-8").replace("__DATA__", text))
    return path
