"""The process that sends the spans of requests to OpenTelemetry, seen from the load generator."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from enginebench.settings.schema import UserMistake

logger = logging.getLogger(__name__)

FLUSH_LIMIT = 60.0  # seconds for the last spans after a run
NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
INSTALL = "pip install 'enginebench[otel]', or uv tool install 'enginebench[otel]'"


def check_installed() -> None:
    """Raise `UserMistake` if OpenTelemetry's SDK is missing."""
    for module in NEEDED:
        try:
            installed = find_spec(module) is not None
        except ModuleNotFoundError:  # a parent package is missing
            installed = False
        if not installed:
            raise UserMistake(f"--otel needs OpenTelemetry's SDK, which is not installed: {INSTALL}.")


class SpanSender:
    """The process that follows the records in `folder`; it also ends if this process is killed.

    `start_wall` is the run's start on the wall clock, in nanoseconds.
    """

    def __init__(self, folder: Path, run: str, start_wall: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "loadtests.harness.recording.otel_export", str(folder), run, str(start_wall)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal ends the run, whose last spans are still sent
        )

    def finish(self) -> None:
        """Wait until the spans of all records have been sent, and log how many."""
        try:
            output, errors = self._process.communicate(timeout=FLUSH_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            logger.error("The spans of the run were not all sent within %g s.", FLUSH_LIMIT)
            return
        if self._process.returncode:
            logger.error(
                "The spans of the run were not all sent (%s).", (errors.strip() or "no reason").splitlines()[-1]
            )
            return
        result = json.loads(output)
        if result["lost"]:
            logger.error("%d of %d spans were not sent (%s).", result["lost"], result["spans"], result["why"])
        else:
            logger.info("%d spans were sent to OpenTelemetry: %.1f s of CPU time.", result["spans"], result["cpu"])
