"""A calibration as a table for the terminal, with one sentence that says what it means."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.box import SIMPLE_HEAD
from rich.table import Table

from loadtests.harness.run.calibration import LIMITS, Calibration, Cell

WIDTH = 132
COLUMNS: dict[str, Callable[[Cell], str]] = {
    "users ×\ntokens/s": lambda cell: f"{cell.users} × {cell.rate:g}",
    "machine": lambda cell: cell.condition,
    "achieved\ntokens/s": lambda cell: f"{cell.tokens_per_second:,.0f}",
    "re-\nquests": lambda cell: f"{cell.requests:,}",
    "failed": lambda cell: f"{cell.failures}",
    "TTFT\nbias\nms": lambda cell: f"{cell.ttft.bias * 1e3:+.3f}",
    "TTFT\np50\nms": lambda cell: f"{cell.ttft.p50 * 1e3:.3f}",
    "TTFT\np99\nms": lambda cell: f"{cell.ttft.p99 * 1e3:.3f}",
    "same, no\nkernel\nstamps": lambda cell: f"{cell.ttft_user_space.p99 * 1e3:.2f}",
    "TPOT\np50\n%": lambda cell: f"{cell.tpot.p50 * 100:.4f}",
    "TPOT\np99\n%": lambda cell: f"{cell.tpot.p99 * 100:.4f}",
    "E2E\np50\nms": lambda cell: f"{cell.e2e.p50 * 1e3:.3f}",
    "E2E\np99\nms": lambda cell: f"{cell.e2e.p99 * 1e3:.3f}",
    "CPU per\ntoken\nµs": lambda cell: f"{cell.cpu_per_token * 1e6:.1f}",
    "no free\ncore\n%": lambda cell: "–" if cell.run_delay is None else f"{cell.run_delay * 100:.1f}",
}


def table(calibration: Calibration) -> Table:
    processes = calibration.processes
    title = f"Measurement error of the client, {processes} client process{'es' if processes > 1 else ''}"
    made = Table(title=title, box=SIMPLE_HEAD, padding=(0, 0, 0, 1), title_justify="left")
    for column in COLUMNS:
        made.add_column(column, justify="right", no_wrap=True)
    for cell in calibration.cells:
        made.add_row(*(text(cell) for text in COLUMNS.values()))
    return made


def sentence(calibration: Calibration) -> str:
    """Up to which load the error stays how small."""
    heaviest = max(cell.tokens_per_second for cell in calibration.on("quiet"))
    parts: list[str] = []
    before: float | None = math.nan
    for limit in LIMITS:
        load = calibration.highest_load(limit)
        if load == before:  # a wider limit says no more
            if load is None:
                parts[-1] = f"above {limit * 1e3:g} ms already at the lightest load tried"
            continue
        before = load
        if load is None:
            parts.append(f"above {limit * 1e3:g} ms already at the lightest load tried")
        elif load == heaviest:
            parts.append(f"within {limit * 1e3:g} ms at every load tried, up to {load:,.0f} tokens/s")
            break
        else:
            parts.append(f"within {limit * 1e3:g} ms up to {load:,.0f} tokens/s")
    if before is not None and before != heaviest:
        parts[-1] += f", and above {LIMITS[-1] * 1e3:g} ms beyond"
    busy = max((cell.ttft.p99 for cell in calibration.on("busy")), default=None)
    beside = "" if busy is None else f" Beside a load that keeps all cores busy it is up to {busy * 1e3:.2g} ms."
    return f"On this host the TTFT p99 error is {'; '.join(parts)}.{beside}"
