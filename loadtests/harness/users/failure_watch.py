"""The end of a run that can no longer measure anything.

If all first requests fail, because of a wrong address, key or request or because answers are not streamed, a run would
go on for minutes and measure nothing. So it is ended with the server's reason, and so is a run whose key expires.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice

from locust.env import Environment

from enginebench.records.request import DROPPED, UNJUDGED, UNSENT, RequestRecord
from enginebench.records.rules import is_failure
from enginebench.records.stage import SECOND, Nanoseconds
from loadtests.harness.client.outcome import load_explains
from loadtests.harness.users.failures import end_run

logger = logging.getLogger(__name__)

MIN_REQUESTS, MIN_TIME = 20, 5 * SECOND  # requests, and time since the first of them ended, before a run is ended
NO_ACCESS = (401, 403)
MAX_RECORDS = 1000  # records read of a run in which all requests failed


class FailureWatch:
    """Watch the requests of one process that makes load."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._watching = True
        self._answered = False
        self._failed = 0  # requests in a row
        self._first: Nanoseconds = 0
        self._warned = False

    def request_ended(self, record: RequestRecord) -> None:
        if record.outcome == UNSENT and not self._warned:
            self._warned = True
            logger.warning(
                "The load generator could not send a request (%s): the run is invalid. Raise the limits of this "
                "machine (ulimit -n), or use more processes (--processes) or fewer users.",
                record.detail,
            )
        if not self._watching or record.outcome in (*UNJUDGED, DROPPED):
            return
        if load_explains(record):
            self._answered, self._failed, self._first = True, 0, 0
            return
        if self._answered and record.status not in NO_ACCESS:
            return  # for example in a stage whose prompts are too long
        self._failed += 1
        self._first = self._first or record.t_end
        if self._failed >= MIN_REQUESTS and record.t_end - self._first >= MIN_TIME:
            self._watching = False
            end_run(self._environment, self._sentence(record))

    def _sentence(self, last: RequestRecord) -> str:
        reason = reason_of(last)
        if self._answered:
            return (
                f"The last {self._failed} requests were all refused because access was denied ({reason}). Give a key "
                "that is valid for the whole run."
            )
        return (
            f"All of the first {self._failed} requests failed in a way that load does not explain ({reason}). Fix the "
            "request or the server."
        )


def reason_of(failed: RequestRecord) -> str:
    """Return text such as `HTTP 401: no such key`."""
    status = f"HTTP {failed.status}" if failed.outcome in {"http_error", "rejected"} else failed.outcome
    return f"{status}: {failed.detail}" if failed.detail else status


def why_all_failed(outcomes: Mapping[str, int], records: Iterable[RequestRecord]) -> str | None:
    """Return the most frequent reason among the first records; `None` if a request was answered, or none was sent."""
    if outcomes.get("ok") or not any(count for outcome, count in outcomes.items() if is_failure(outcome)):
        return None
    reasons = Counter(reason_of(record) for record in islice(records, MAX_RECORDS) if is_failure(record.outcome))
    return next((reason for reason, _ in reasons.most_common(1)), None)
