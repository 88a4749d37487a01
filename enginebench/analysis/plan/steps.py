"""An engine's steps, recovered from the arrival times of its chunks.

A batching engine computes one step at a time, and every running request receives a token at the end of the step. So the
chunks of all requests arrive in clusters, and each cluster is the end of a step. Its duration, its number of running
requests and the prompt tokens that it prefilled can be read off the records of any server.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from enginebench.analysis.arrays import Flags, Floats, Integers
from enginebench.analysis.data.chunks import WindowChunks

MIN_CHUNKS = 20
GAPS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 12e-3)  # seconds between chunks that may separate two steps
SYNCHRONISED = 0.6  # share of steps in which every running request received a token, below which there is no batch
TOGETHER = 0.5  # the chunks of one step arrive within this share of the time to the next step
ONE_TOKEN = 0.05  # tokens per step count as one if they differ from it by less: some tokens have no text

Generator = np.random.Generator


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of an engine in order, one element per step unless a comment says otherwise."""

    complete: float  # share of steps in which every running request received a token
    end: Floats  # seconds since the run's start
    seconds: Floats
    running: Floats  # requests that received a token
    prompts: Floats  # requests that received their first token
    tokens: Floats  # prompt tokens that were prefilled for those requests
    occupied: Floats  # requests that had a slot, whether or not they received a token
    left: Floats  # requests that had been waiting for more than a step when it began, and were not admitted
    alone: Flags  # prefilled while the running requests paused
    mixed: Flags  # prefilled while the running requests continued
    missed: Floats  # per request: seconds from its due time to the start of the step before the one that admitted it
    caught: Floats  # per request: seconds from its due time to the start of the step that admitted it
    beside: Floats  # per request: slots taken in the step before; 0 if it did not wait for longer than that step
    waited: Floats  # per request to an idle engine: seconds from its due time to its first chunk
    waited_tokens: Floats  # per request to an idle engine: prompt tokens
    tokens_per_step: float  # output tokens that a running request receives in a step

    @property
    def synchronised(self) -> bool:
        """Return whether the engine computes one batch for all requests; else each request has its own steps."""
        return self.complete >= SYNCHRONISED


def find_steps(chunks: WindowChunks) -> Steps | None:
    """Find the steps in the chunks of a window; `None` if there are too few chunks."""
    if len(chunks.stamp) < MIN_CHUNKS:
        return None
    return max((_steps(chunks, _clusters(chunks, gap)) for gap in GAPS), key=lambda steps: steps.complete)


def _clusters(chunks: WindowChunks, gap: float) -> Integers:
    """Number the cluster of each chunk. A new cluster begins after a `gap` in seconds, or when a request recurs."""
    cut = np.concatenate(([False], np.diff(chunks.stamp) > gap))
    group = np.cumsum(cut)
    order = np.lexsort((chunks.request, group))
    again = (np.diff(group[order]) == 0) & (np.diff(chunks.request[order]) == 0)
    for bad in np.unique(group[order][1:][again]).tolist():
        low, high = np.searchsorted(group, [bad, bad + 1])
        seen: set[int] = set()
        for at, request in enumerate(chunks.request[low:high].tolist(), start=low):
            if request in seen:
                cut[at] = True
                seen.clear()
            seen.add(request)
    return np.asarray(np.cumsum(cut), dtype=np.int64)


def _steps(chunks: WindowChunks, cluster: Integers) -> Steps:
    count = int(cluster[-1]) + 1
    end = chunks.stamp[np.searchsorted(cluster, np.arange(count))]
    # Requests that began before the piece have no first cluster in it; requests that continue after it have no last.
    is_first = chunks.stamp == chunks.first[chunks.request]
    begins = np.full(len(chunks.first), -1, dtype=np.int64)
    begins[chunks.request[is_first]] = cluster[is_first]
    begins[chunks.first >= chunks.end] = count
    ends = np.full(len(chunks.first), -1, dtype=np.int64)
    np.maximum.at(ends, chunks.request, cluster)
    ends[chunks.last >= chunks.end] = count
    started = np.bincount(begins[(begins >= 0) & (begins < count)], minlength=count)
    stopped = np.bincount(ends[(ends >= 0) & (ends < count)], minlength=count)
    before = int(((begins < 0) & (ends >= 0)).sum())
    occupied = before + np.cumsum(started) - np.cumsum(stopped) + stopped
    expected = occupied - started
    present = np.bincount(cluster, minlength=count) - started
    alone = (present == 0) & (started > 0) & (expected > 0)
    several = (expected > 1) | ((expected > 0) & (started > 0))
    # Requests with their own steps also come once in every round, but spread over the whole round.
    spread = chunks.stamp[np.searchsorted(cluster, np.arange(count), side="right") - 1] - end
    together = spread < TOGETHER * np.diff(end, append=np.inf)
    complete = float((((present == expected) & together) | alone)[several].mean()) if several.any() else 1.0
    tokens = np.bincount(begins[begins >= 0], weights=chunks.prefilled[begins >= 0], minlength=count + 1)[:count]
    came = np.searchsorted(np.sort(chunks.due), end, side="right") - (len(chunks.first) - np.sum(begins >= 0))
    # Requests due just before a step may have reached the engine too late: only requests due a whole step earlier count
    # as waiting.
    waiting = np.maximum(np.concatenate(([0], came[:-1])) - np.cumsum(started), 0)  # after each step
    busy = np.concatenate(([False], (occupied - stopped + waiting)[:-1] > 0))
    left = np.concatenate(([0], np.maximum(waiting[:-1] - started[1:], 0)))
    return Steps(
        complete=complete,
        end=end[busy],
        seconds=np.diff(end, prepend=end[0])[busy],
        running=np.where(alone, started, occupied)[busy].astype(np.float64),
        prompts=started[busy].astype(np.float64),
        tokens=tokens[busy].astype(np.float64),
        occupied=occupied[busy].astype(np.float64),
        left=left[busy].astype(np.float64),
        alone=alone[busy],
        mixed=((present > 0) & (started > 0))[busy],
        **_admissions(chunks, begins, busy, end, occupied),
        tokens_per_step=_tokens_per_step(chunks, begins, ends, alone),
    )


def _admissions(
    chunks: WindowChunks, begins: Integers, busy: Flags, end: Floats, occupied: Integers
) -> dict[str, Floats]:
    """Return when requests came, relative to the steps that they just missed and just caught, and how long requests to
    an idle engine waited. A request that waited for more than a step may have waited for a slot."""
    first = np.flatnonzero((begins > 2) & (begins < len(busy)))
    at = begins[first]
    observed = busy[at] & busy[at - 1]
    first, at = first[observed], at[observed]
    inside = np.flatnonzero((begins > 0) & (begins < len(busy)))
    single = np.bincount(begins[inside], minlength=len(busy)) == 1
    idle = inside[~busy[begins[inside]] & single[begins[inside]] & (chunks.due[inside] >= end[begins[inside] - 1])]
    return {
        "missed": end[at - 2] - chunks.due[first],
        "caught": end[at - 1] - chunks.due[first],
        "beside": np.where(chunks.due[first] > end[at - 3], 0.0, occupied[at - 1]),
        "waited": (chunks.first - chunks.due)[idle],
        "waited_tokens": chunks.prefilled[idle],
    }


def _tokens_per_step(chunks: WindowChunks, begins: Integers, ends: Integers, alone: Flags) -> float:
    """Divide the tokens of answers that are completely inside the piece by the number of their steps."""
    whole = (begins >= 0) & (ends >= 0) & (ends < len(alone)) & (chunks.output > 1)
    if not whole.any():
        return 1.0
    decoded = np.cumsum(~alone)
    steps = 1 + decoded[ends[whole]] - decoded[begins[whole]]
    ratio = float(chunks.output[whole].sum() / steps.sum())
    return 1.0 if abs(ratio - 1) < ONE_TOKEN else ratio
