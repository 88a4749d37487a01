"""Locust's own statistics of the requests, which its page shows.

Each request counts once, with its end-to-end time, and in a row for each live metric; these rows are not part of
Aggregated. The numbers are rounded and for watching only; reports are computed from the records.
"""

from __future__ import annotations

from collections import deque

from locust.env import Environment

from enginebench.records.metrics import BY_NAME, E2E, REQUEST_METRICS
from enginebench.records.request import CENSORED, RequestRecord
from enginebench.records.stage import SECOND
from loadtests.harness.live.counts import AT_A_TIME

ROWS = tuple((metric, metric.title.partition(" (")[0]) for metric in REQUEST_METRICS if metric.shown.live)
MILLISECONDS = 1e3  # Locust counts in them


class RequestFailed(Exception):
    """An entry under Failures on Locust's page. There are few kinds, so a million failures make few entries."""


class LocustStatistics:
    """Enter the requests of one process. Call `enter` regularly, and `close` at the end."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        options = environment.parsed_options
        if options is not None and options.headless and not (options.html_file or options.csv_prefix):
            # No output shows recent percentiles, for which Locust copies all response times every second.
            environment.stats.use_response_times_cache = environment.stats.total.use_response_times_cache = False
        self._ended: deque[tuple[str, RequestRecord, int]] = deque()

    def request_ended(self, path: str, record: RequestRecord, answer_bytes: int) -> None:
        if record.outcome not in CENSORED:  # stopped by the end of the run: neither success nor failure
            self._ended.append((path, record, answer_bytes))

    def enter(self) -> bool:
        """Enter some of the requests that have ended, and return whether more are left."""
        for _ in range(AT_A_TIME):
            if not self._ended:
                return False
            self._enter(*self._ended.popleft())
        return True

    def close(self) -> None:
        while self.enter():
            pass

    def _enter(self, path: str, record: RequestRecord, answer_bytes: int) -> None:
        failure = None
        if record.outcome == "ok":
            for metric, title in ROWS:
                if (seconds := metric.read(record)) is not None:
                    self._environment.stats.get(path, title).log(seconds * MILLISECONDS, 0)  # type: ignore[arg-type]  # it rounds
        else:
            failure = RequestFailed(" ".join(filter(None, (record.outcome, str(record.status or "")))))
        # A failed request counts from its sending, if it was sent.
        since = record.t_sched if record.t_send is None else record.t_send
        e2e = BY_NAME[E2E].read(record)
        self._environment.events.request.fire(  # type: ignore[no-untyped-call]
            request_type="POST",
            name=path,
            response_time=((record.t_end - since) / SECOND if e2e is None else e2e) * MILLISECONDS,
            response_length=answer_bytes,
            exception=failure,
            context={},
        )
