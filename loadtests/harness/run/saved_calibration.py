"""The accuracy of the client on this machine, as `enginebench calibrate` measured it, kept for later runs."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import platformdirs

from enginebench.records.files import write_atomically

SCHEMA_VERSION = 2
Condition = Literal["quiet", "busy"]
LIMIT = 0.001  # seconds of TTFT p99 error up to which the client keeps up with a load


@dataclass(frozen=True, slots=True)
class Error:
    """The client's values minus the true ones. `bias` is the mean, the percentiles are of the absolute error."""

    bias: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Cell:
    """A load of the grid. Seconds, except `tpot`, whose errors are fractions of the true value."""

    users: int
    rate: float  # planned tokens per second and user, waits for first tokens included
    condition: Condition  # whether other processes kept all cores busy
    tokens_per_second: float  # achieved while all users were active
    requests: int
    failures: int
    ttft: Error
    ttft_user_space: Error  # of the same reads without kernel stamps
    tpot: Error
    e2e: Error
    cpu_per_token: float
    run_delay: float | None  # share of the time in which a client process was ready to run but had no core


@dataclass(frozen=True, slots=True)
class Calibration:
    """All cells of one grid, and the host that they were measured on."""

    made_at: str  # ISO 8601, UTC
    processes: int
    cells: tuple[Cell, ...]
    host: Mapping[str, Any]
    versions: Mapping[str, str]
    schema: int = SCHEMA_VERSION

    def on(self, condition: Condition) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.condition == condition)

    def highest_load(self, limit: float) -> float | None:
        """Return the tokens/s up to which every load on a quiet machine had a TTFT p99 error within `limit`."""
        highest = None
        for cell in sorted(self.on("quiet"), key=lambda cell: cell.tokens_per_second):
            if cell.ttft.p99 > limit:
                break
            highest = cell.tokens_per_second
        return highest


def path_here(processes: int) -> Path:
    """Return the path of this host's calibration for `processes` client processes."""
    host = re.sub(r"[^\w.-]", "-", socket.gethostname()) or "host"
    return platformdirs.user_data_path("enginebench") / "calibration" / f"{host}-{processes}.json"


def save(calibration: Calibration, path: Path) -> None:
    """Replace the file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(calibration)) + b"\n")


def keep(calibration: Calibration, path: Path) -> bool:
    """Save `calibration`, unless the file has a calibration of more loads with the same versions."""
    saved = load(path)
    if saved is not None and saved.versions == calibration.versions and len(saved.cells) > len(calibration.cells):
        return False
    save(calibration, path)
    return True


def load(path: Path) -> Calibration | None:
    """Return `None` if the file is missing, or has another version's format."""
    try:
        calibration = msgspec.json.decode(path.read_bytes(), type=Calibration)
    except (OSError, msgspec.DecodeError):
        return None
    return calibration if calibration.schema == SCHEMA_VERSION else None
