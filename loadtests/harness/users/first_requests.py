"""What the first requests say of the whole run: whether it can measure anything.

A run whose first requests all fail because of a wrong address, key or request, or because answers are not streamed,
would go on for minutes and measure nothing: it ends with the server's own words.
"""

from __future__ import annotations

import logging

from locust.env import Environment

from loadtests.harness.client.outcome import load_explains
from loadtests.harness.users.failures import end_run
from records.request import RequestRecord
from records.rules import UNJUDGED
from records.stage import SECOND, Nanoseconds

logger = logging.getLogger(__name__)

FEWEST, LEAST = 20, 5 * SECOND  # requests, and time since the first of them ended, before a run is given up


class FailureWatch:
    """One for each process that makes load. `keep_going`: a run in which everything fails is not ended."""

    def __init__(self, environment: Environment, keep_going: bool) -> None:
        self._environment = environment
        self._watching = not keep_going
        self._failed = 0
        self._first: Nanoseconds = 0
        self._told = False

    def request_ended(self, record: RequestRecord) -> None:
        if record.outcome == "unsent" and not self._told:
            self._told = True
            logger.warning(
                "The load generator could not send a request (%s): the run is invalid. Raise the limits of this "
                "machine (ulimit -n), or use more processes (--processes) or fewer users.",
                record.detail,
            )
        if not self._watching or record.outcome in (*UNJUDGED, "dropped"):
            return
        if load_explains(record):
            self._watching = False
            return
        self._failed += 1
        self._first = self._first or record.t_end
        if self._failed >= FEWEST and record.t_end - self._first >= LEAST:
            self._watching = False
            status = f"HTTP {record.status}" if record.outcome == "http_error" else record.outcome
            said = f": {record.detail}" if record.detail else ""
            end_run(
                self._environment,
                f"All of the first {self._failed} requests failed in a way that load does not explain ({status}{said})."
                " Mend the request or the server; --keep-going makes the run go on.",
            )
