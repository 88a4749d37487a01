"""Run folders without a server: simulated closed-loop users at a queue with a number of slots, written as records."""

import dataclasses
import heapq
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from enginebench.records.files import write_meta
from enginebench.records.load import Load, Users
from enginebench.records.request import RequestRecord, SentRecord
from enginebench.records.run import RunMeta
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from enginebench.records.telemetry import TelemetrySample


@dataclass(frozen=True)
class Engine:
    """`slots` requests run at a time. Each takes `prefill` seconds, then `tpot` per token, both with some noise."""

    label: str = "fake"
    slots: int = 4
    prefill: float = 0.05
    tpot: float = 0.01
    tokens: int = 16
    tokens_per_chunk: int = 1
    noise: float = 0.1
    failures: float = 0.0


def plan_of(load: Load | int, warm_up: float, window: float, name: str | None = None) -> StagePlan:
    """Return the plan of a stage; durations are in seconds, and a plain number is a number of users."""
    whole = Users(load) if isinstance(load, int) else load
    return StagePlan(whole, Extent(warm_up), Extent(window), name=name)


def stages_of(
    loads: tuple[Load | int, ...], seconds: float, warm_up: float = 0.2, hold: float = 0.1, names: tuple[str, ...] = ()
) -> tuple[Stage, ...]:
    """Return stages of the same duration in seconds; `warm_up` and `hold` are shares of it."""
    stages = []
    for index, load in enumerate(loads):
        start, length = int(index * seconds * SECOND), int(seconds * SECOND)
        steady = (start + int(warm_up * length), start + length - int(hold * length))
        plan = plan_of(load, warm_up * seconds, (steady[1] - steady[0]) / SECOND, names[index] if names else None)
        stages.append(Stage(index, plan, start, *steady, start + length))
    return tuple(stages)


def meta_of(stages: tuple[Stage, ...], label: str = "fake", slots: int = 4, **changes: Any) -> RunMeta:
    meta = RunMeta(
        run_id=f"20261121-100000-{label}-abcd",
        started_at="2026-11-21T10:00:00.000+00:00",
        scenario="concurrent",
        url="http://127.0.0.1:8000",
        model="smollm2-135m",
        plan=tuple(stage.plan for stage in stages),
        stages=stages,
        workload={
            "endpoint": "chat",
            "streamed": True,
            "prompt_tokens": "40",
            "shared_prefix_tokens": 0,
            "output_tokens": "16",
            "temperature": 0.0,
            "ignore_eos": True,
            "seed": 0,
            "think_time": 0.0,
        },
        engine={
            "name": label,
            "version": "1.0",
            "language": "Python",
            "model": "smollm2-135m",
            "dtype": "bfloat16",
            "device": "cpu",
            "batching": "continuous",
            "max_concurrency": slots,
            "context_length": 2048,
        },
        host={"cpu": "Test CPU", "cores": 2, "memory": 8 << 30, "os": "Linux", "python": "3.11"},
        versions={"enginebench": "0.1.0", "locust": "2.47"},
        label=label,
        command=("enginebench", "run", "concurrent", "--engine", label, "--stages", "10,20,40"),
        client_error=((10.0, 0.01, 0.00002), (10_000.0, 0.01, 0.00004)),
    )
    return dataclasses.replace(meta, **changes)


def record(number: int, t_sched: int, **changes: Any) -> RequestRecord:
    """Return a successful request: sent immediately, first token after 100 ms, three chunks 20 ms apart."""
    t_first = t_sched + SECOND // 10
    whole = RequestRecord(
        request_id=f"0-{number}",
        worker="0",
        scenario="concurrent",
        stage=0,
        user=0,
        outcome="ok",
        status=200,
        t_sched=t_sched,
        t_send=t_sched,
        t_headers=t_first,
        t_first=t_first,
        t_first_out=t_first,
        t_last=t_first + 2 * SECOND // 50,
        t_end=t_first + 2 * SECOND // 50,
        read_first=t_first,
        stamps="kernel",
        icl=(SECOND // 50, SECOND // 50),
        chunks=3,
        first_chunk_tokens=1,
        prompt_tokens=40,
        output_tokens=3,
        token_source="usage",
    )
    return msgspec.structs.replace(whole, **changes)


def sent_line(one: RequestRecord) -> str:
    """Return the line that is written when a request is sent."""
    assert one.t_send is not None
    sent = SentRecord(
        request_id=one.request_id, worker=one.worker, stage=one.stage, t_sched=one.t_sched, t_send=one.t_send
    )
    return sent.to_line()


def write_run(
    folder: Path, meta: RunMeta, records: list[RequestRecord], samples: list[TelemetrySample] | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_meta(folder, meta)
    (folder / "requests-0.jsonl").write_text("".join(one.to_line() for one in records))
    if samples is not None:
        write_samples(folder / "telemetry.jsonl", samples)
    return folder


def write_samples(path: Path, samples: list[TelemetrySample]) -> None:
    path.write_text("".join(sample.to_line() for sample in samples))


def in_order(samples: list[TelemetrySample]) -> list[TelemetrySample]:
    """Mark the last sample as that of a process that ended cleanly."""
    return [*samples[:-1], msgspec.structs.replace(samples[-1], last=True)]


def simulate(
    folder: Path,
    engine: Engine,
    loads: tuple[int, ...] = (2, 4, 8),
    seconds: float = 20.0,
    seed: int = 0,
    names: tuple[str, ...] = (),
    **changes: Any,
) -> Path:
    """Write a run of a closed loop, first come, first served. Each stage is held until its window is answered."""
    rng = Random(f"{engine.label} {seed}")
    free = [0] * engine.slots
    records: list[RequestRecord] = []
    stages: list[Stage] = []
    ready: list[tuple[int, int]] = []
    start = 0
    for index, count in enumerate(loads):
        plan = plan_of(count, 0.2 * seconds, 0.7 * seconds, names[index] if names else None)
        steady = (start + int(0.2 * seconds * SECOND), start + int(0.9 * seconds * SECOND))
        ready = [one for one in ready if one[1] < count]
        known = {user for _, user in ready}
        ready += [(start + rng.randrange(SECOND), user) for user in range(count) if user not in known]
        heapq.heapify(ready)
        answered = steady[1]
        while ready[0][0] < answered:
            t, user = heapq.heappop(ready)
            one = _request(engine, rng, len(records), t, index, user, free)
            records.append(one)
            if steady[0] <= t < steady[1]:
                answered = max(answered, one.t_end)
            pause = 20_000 if one.outcome == "ok" else int(0.05 * SECOND * rng.uniform(0.5, 1.5))
            heapq.heappush(ready, (one.t_end + pause, user))
        stages.append(Stage(index, plan, start, *steady, answered))
        start = answered
    samples = [_sample(t, records, engine, stages) for t in range(SECOND, start, SECOND)]
    records = [one if one.t_end <= start else _cut_off(one, start) for one in records if one.t_sched < start]
    return write_run(folder, meta_of(tuple(stages), engine.label, engine.slots, **changes), records, in_order(samples))


def simulate_in_turn(
    folder: Path, engines: tuple[Engine, ...], loads: tuple[int, ...], seconds: float, repeats: int = 3
) -> Path:
    """Write interleaved runs `LABEL-REPEAT`, one round per minute."""
    for repeat in range(repeats):
        for order, engine in enumerate(engines):
            name, at = f"{engine.label}-{repeat}", f"2026-11-21T10:{repeat:02d}:{order:02d}.000+00:00"
            simulate(folder / name, engine, loads, seconds, repeat, run_id=name, repeat=repeat, started_at=at)
    return folder


def _request(engine: Engine, rng: Random, number: int, t: int, stage: int, user: int, free: list[int]) -> RequestRecord:
    sent = t + rng.randrange(100_000)
    place: dict[str, Any] = {"stage": stage, "user": user, "t_send": sent}
    if rng.random() < engine.failures:
        return record(number, t, **place, **FAILED | {"t_end": sent + SECOND // 100})

    def about(duration: float) -> int:
        return max(int(duration * SECOND * rng.lognormvariate(0, engine.noise)), 1)

    start = max(sent, heapq.heappop(free))
    prefill = about(engine.prefill)
    first = start + prefill + 300_000
    chunks = -(-engine.tokens // engine.tokens_per_chunk)
    gaps = tuple(about(engine.tpot * engine.tokens_per_chunk) for _ in range(chunks - 1))
    last = first + sum(gaps)
    heapq.heappush(free, last)
    place |= {"server_queue": (start - sent) / SECOND, "server_prefill": prefill / SECOND}
    return record(
        number,
        t,
        **place,
        t_headers=first,
        t_first=first,
        t_first_out=first,
        t_last=last,
        t_end=last + 50_000,
        read_first=first + rng.randrange(200_000),
        icl=gaps,
        chunks=chunks,
        first_chunk_tokens=engine.tokens_per_chunk,
        output_tokens=engine.tokens,
    )


NOTHING_CAME: dict[str, Any] = {
    "t_first": None,
    "t_first_out": None,
    "t_last": None,
    "read_first": None,
    "icl": (),
    "chunks": 0,
    "first_chunk_tokens": None,
    "output_tokens": None,
    "token_source": None,
}
FAILED: dict[str, Any] = NOTHING_CAME | {"outcome": "rejected", "status": 429, "detail": "queue full"}


def _cut_off(one: RequestRecord, end: int) -> RequestRecord:
    return msgspec.structs.replace(
        one, **NOTHING_CAME | {"outcome": "cut_off", "t_end": end, "text": "", "t_headers": None}
    )


def _sample(t: int, records: list[RequestRecord], engine: Engine, stages: list[Stage]) -> TelemetrySample:
    flying = sum(1 for one in records if one.t_send is not None and one.t_send <= t < one.t_end)
    done = sum(one.output_tokens or 0 for one in records if one.t_end <= t)
    label = f'{{engine="{engine.label}"}}'
    return TelemetrySample(
        t=t,
        client_cpu=0.2,
        loop_lag=0.001,
        users=next((int(stage.load.value) for stage in stages if stage.end is None or t < stage.end), 0),
        run_delay=0.001,
        server={
            f"enginebench_requests_running{label}": float(min(flying, engine.slots)),
            f"enginebench_requests_waiting{label}": float(max(flying - engine.slots, 0)),
            f"enginebench_generation_tokens_total{label}": float(done),
            f"enginebench_engine_memory_bytes{label}": 5e8,
        },
    )
