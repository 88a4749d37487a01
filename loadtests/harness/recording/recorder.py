"""The files of a run, to which lines are appended as events happen, even after the disk was full.

Each line is one write to an unbuffered file: the operating system has it when the request has ended, so a killed
process loses nothing. That costs microseconds per request, not per token. A full disk is reported once; the run
continues, and the next line that fits is complete.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from enginebench.records.request import RequestRecord, SentRecord
from enginebench.records.run import JournalLine
from enginebench.records.telemetry import TelemetrySample

logger = logging.getLogger(__name__)


class Recorder:
    """A JSON-lines file. `lost` counts the ended requests or samples that could not be written."""

    def __init__(self, path: Path) -> None:
        """Open for appending. Raises `OSError`."""
        self.path = path
        self.lost = 0
        self._warned = False
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._size = os.fstat(self._file).st_size

    def write(self, line: RequestRecord | SentRecord | TelemetrySample | JournalLine) -> None:
        counts = not isinstance(line, SentRecord)
        if self._file is None:  # a request that outlived the run's end
            self.lost += counts
            return
        data = line.to_line().encode()
        try:
            complete = os.write(self._file, data) == len(data)
            if not complete:
                raise OSError(f"only part of a line fitted into {self.path}")
        except OSError as error:
            self._give_up(error)
            self.lost += counts
            return
        self._size += len(data)

    def close(self) -> None:
        """Log how many lines were lost, if any. May be called more than once."""
        if self._file is None:
            return
        os.close(self._file)
        self._file = None
        if self.lost:
            logger.error("%s lacks %d lines that could not be written.", self.path, self.lost)

    def _give_up(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            logger.error(
                "Cannot write to %s (%s). The run continues, but its measurements are lost until there is space again.",
                self.path,
                error,
            )
        assert self._file is not None
        try:
            os.ftruncate(self._file, self._size)  # half a line would corrupt the next one
        except OSError:
            logger.debug("could not remove half a line from %s", self.path)
