"""Annotate a run and its stages in the Grafana at `GRAFANA_URL`.

Each is an annotation with a begin, made as it begins, and an end, added when it is known: a killed run keeps its
marks. They are sent from a separate greenlet, so a slow Grafana does not delay the run.

    GRAFANA_URL=http://127.0.0.1:3000 GRAFANA_TOKEN=glsa_… locust -f loadtests/concurrent.py
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from time import monotonic_ns

import gevent
import httpx
from gevent.queue import SimpleQueue

from records.run import RunMeta
from records.stage import Nanoseconds, Stage

logger = logging.getLogger(__name__)

URL, TOKEN = "GRAFANA_URL", "GRAFANA_TOKEN"
TIMEOUT = 5.0  # seconds for one annotation, and for those that are left when the run ends
MILLISECOND: Nanoseconds = 1_000_000  # Grafana counts in them
RUN = -1  # key of the whole run's annotation; stages have their index


class GrafanaAnnotations:
    """`since` is the run's start on this process's monotonic clock, in nanoseconds."""

    def __init__(self, url: httpx.URL, token: str | None, meta: RunMeta, since: Nanoseconds) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT, verify=url.scheme == "https")
        self._since = since
        self._started = time.time_ns() - (monotonic_ns() - since)
        self._tags = ["enginebench", meta.run_id, meta.label, meta.scenario]
        self._begun: set[int] = set()
        self._ended: set[int] = set()
        self._ids: dict[int, int] = {}
        self._failed = False
        self._marks: SimpleQueue[tuple[int, Nanoseconds, str | None] | None] = SimpleQueue()
        self._greenlet = gevent.spawn(self._send_all)
        self._mark(RUN, 0, f"{meta.scenario}, {meta.label}")

    def show(self, stages: Sequence[Stage]) -> None:
        """The stages that have begun so far, as far as they are known."""
        for stage in stages:
            if stage.index not in self._begun:
                self._begun.add(stage.index)
                self._mark(stage.index, stage.start, stage.label)
            if stage.end is not None and stage.index not in self._ended:
                self._ended.add(stage.index)
                self._mark(stage.index, stage.end)

    def close(self) -> None:
        """The run ends now."""
        self._mark(RUN, monotonic_ns() - self._since)
        self._marks.put(None)
        self._greenlet.join(TIMEOUT)
        self._greenlet.kill()
        self._http.close()

    def _mark(self, which: int, at: Nanoseconds, begins: str | None = None) -> None:
        self._marks.put((which, at, begins))

    def _send_all(self) -> None:
        while (mark := self._marks.get()) is not None:
            try:
                self._send(*mark)
            except (httpx.HTTPError, ValueError, KeyError) as error:
                self._report(error)

    def _send(self, which: int, at: Nanoseconds, begins: str | None) -> None:
        """`begins` is the text of a mark that begins; without one it ends."""
        when = (self._started + at) // MILLISECOND
        if begins is not None:
            tags = [*self._tags, "run" if which == RUN else "stage"]
            answer = self._http.post("/api/annotations", json={"time": when, "tags": tags, "text": begins})
            self._ids[which] = int(answer.raise_for_status().json()["id"])
        elif which in self._ids:
            self._http.patch(f"/api/annotations/{self._ids[which]}", json={"timeEnd": when}).raise_for_status()

    def _report(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            # The error's own text has the address, which may have a password in it.
            reason = f"HTTP {error.response.status_code}" if isinstance(error, httpx.HTTPStatusError) else error
            logger.warning("Grafana does not accept annotations (%s); the run continues without them.", reason)


def grafana_annotations(
    meta: RunMeta, since: Nanoseconds, environment: Mapping[str, str] = os.environ
) -> GrafanaAnnotations | None:
    """`None` where no Grafana is named. Raises `ValueError` with a sentence where its address is none."""
    if not (url := environment.get(URL)):
        return None
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        address = httpx.URL()
    if address.scheme not in ("http", "https") or not address.host:
        raise ValueError(f"{URL} is not an http or https address; unset it, or use one such as http://127.0.0.1:3000.")
    return GrafanaAnnotations(address, environment.get(TOKEN), meta, since)
