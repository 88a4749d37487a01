"""Check that the stages of a run measure the long-run TPOT and throughput of long answers, or warn that they do not.

An engine gives every running answer a token in each step. A step takes longer the more answers run, and longer still
if it prefills a prompt, so tokens that are counted under the load of another stage change the result. The stages are
controlled in virtual time by the code that controls real ones, and the records are read by the real analysis. The
truth is a long simulation of each load without stages.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.files import PLANNER, telemetry_file
from enginebench.records.load import Users
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND
from enginebench.records.telemetry import TelemetrySample
from loadtests.harness.scenario import Scenario, users
from loadtests.harness.schedule.control import StageControl
from loadtests.harness.schedule.tracker import StageTracker
from validation.run_folder import answered, write_folder
from validation.statistics.systems import Generator

LENGTHS = (300, 600)  # tokens of an answer
UPDATE_INTERVAL = 0.05  # seconds between two updates of the stages, as in a real run
GROWTH = 0.02  # by how much each answer prolongs a step
PREFILL = 3.0  # duration of a prompt's prefill in steps, during which all answers wait
LOADS = "10,40,100"
STEPS = (0.002, 0.01, 0.03, 0.08)
WARNINGS = ("unsteady", "unfinished")
TRUTH_ANSWERS = 4000


@dataclass
class Engine:
    """Simulate users who ask again as soon as they are answered. Instants are seconds since the start."""

    step: float  # seconds that a step with one answer takes
    rng: Generator
    clock: float = 0.0
    steps: list[float] = field(default_factory=list)  # instants at which steps ended
    running: dict[int, Answer] = field(default_factory=dict)
    starts: dict[int, float] = field(default_factory=dict)  # when users who have not asked yet will ask

    def add(self, user: int, at: float) -> None:
        self.starts[user] = at

    def advance(self, until: float) -> list[Answer]:
        """Advance to `until` or to the first end of an answer, whichever comes first; return the answers that ended."""
        for user, at in sorted(self.starts.items()):
            if at <= self.clock:
                del self.starts[user]
                self.ask(user, at)
        if not self.running:
            self.clock = min([until, *self.starts.values()])
            return []
        due = min([until, *self.starts.values()])
        step = self.step * (1 + GROWTH * len(self.running))
        steps = min(request.left for request in self.running.values())
        if math.isfinite(due):
            steps = min(steps, max(1, math.ceil((due - self.clock) / step)))
        ends = self.clock + step * np.arange(1, steps + 1)
        self.steps += ends.tolist()
        self.clock = float(ends[-1])
        for answer in self.running.values():
            answer.left -= steps
        ended = [answer for answer in self.running.values() if answer.left == 0]
        for answer in ended:
            del self.running[answer.user]
        return ended

    def ask(self, user: int, at: float) -> Answer:
        tokens = int(self.rng.integers(LENGTHS[0], LENGTHS[1] + 1))
        self.clock += PREFILL * self.step
        self.running[user] = Answer(user, at, tokens, tokens, len(self.steps))
        return self.running[user]


@dataclass
class Answer:
    user: int
    sent: float
    tokens: int
    left: int
    first: int  # index of its first step


@dataclass(frozen=True, slots=True)
class Bias:
    """Errors of the numbers at one load, as shares of the truth, over the runs whose stage has no warning."""

    step: float
    users: int
    runs: int
    warned: int
    tpot: float | None  # mean error of the median
    throughput: float | None  # mean error
    throughput_error: float | None  # standard error of that mean


def truth(step: float, crowd: int, seed: int) -> tuple[float, float]:
    """Return the median TPOT and the tokens per second in the long run."""
    engine = Engine(step, np.random.default_rng([seed, crowd]))
    for user in range(crowd):
        engine.add(user, float(engine.rng.uniform(0, 450 * step)))
    tpots, tokens, start = [], 0, 0.0
    for k in range(TRUTH_ANSWERS + 5 * crowd):
        ended: list[Answer] = []
        while not ended:
            ended = engine.advance(math.inf)
        now = engine.clock
        for answer in ended:
            engine.ask(answer.user, now)
            if k >= 5 * crowd:
                start = start or now
                tpots.append((now - engine.steps[answer.first]) / (answer.tokens - 1))
                tokens += answer.tokens
    return median(tpots), tokens / (engine.clock - start)


def run(folder: Path, step: float, seed: int) -> RunSummary:
    """Run the default stages against this engine, recorded and summarised like a real run."""
    rng = np.random.default_rng([seed, round(step * 1e6)])
    engine, scenario = Engine(step, rng), Scenario(stages=users(LOADS))
    control, tracker = StageControl(scenario.plan()), StageTracker()
    control.begin(0)
    present, latest = 0, [0.2 * scenario.stage_seconds]
    in_flight: dict[int, RequestRecord] = {}  # by user
    numbers = count()
    records: list[RequestRecord] = []

    def schedule(user: int, at: float) -> None:
        record = in_flight[user] = RequestRecord.planned()
        record.request_id, record.user, record.t_sched = f"{next(numbers)}", user, round(at * SECOND)
        tracker.request_scheduled(record)

    while not control.over:
        stage = control.stages[-1]
        tracker.enter(stage)
        assert isinstance(stage.load, Users)
        while present < stage.load.count:  # users start over the duration of one answer, as in a real run
            tracker.user_started(present)
            engine.add(present, engine.clock + float(rng.uniform(0, max(1.0, median(latest[-200:])))))
            present += 1
        boundary = control.next_boundary()
        due = engine.clock + UPDATE_INTERVAL
        if boundary is not None and boundary > round(engine.clock * SECOND):
            due = min(due, boundary / SECOND + 1e-9)
        idle = set(engine.starts)
        ended = engine.advance(due)
        for user in idle - set(engine.starts):
            schedule(user, engine.running[user].sent)
        now = engine.clock
        for answer in ended:
            stamps = [round(at * SECOND) for at in engine.steps[answer.first :]]
            sent, stage_index = round(answer.sent * SECOND), _stage_of(control, answer.sent)
            records.append(answered(len(records), stage_index, answer.user, sent, stamps))
            latest.append(now - answer.sent)
            tracker.request_ended(in_flight[answer.user])
            schedule(answer.user, engine.ask(answer.user, now).sent)
        control.update(round(engine.clock * SECOND), tracker.progress())
    write_folder(folder, "simulated", control.stages, records)
    last = TelemetrySample(max(record.t_end for record in records), users=0, last=True)
    (folder / telemetry_file(PLANNER)).write_bytes(msgspec.json.encode(last) + b"\n")
    return summarise(load_run(folder))


def _stage_of(control: StageControl, sent: float) -> int:
    return next(stage.index for stage in reversed(control.stages) if stage.start <= round(sent * SECOND))


def measure(step: float, runs: int, seed: int) -> list[Bias]:
    """Return one entry for each load."""
    summaries: list[RunSummary] = []
    for k in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            summaries.append(run(Path(folder), step, seed + k))
    return [_bias(step, crowd, index, summaries, seed) for index, crowd in enumerate(map(int, LOADS.split(",")))]


def _bias(step: float, crowd: int, index: int, runs: list[RunSummary], seed: int) -> Bias:
    tpot, throughput = truth(step, crowd, seed)
    quiet = [summary.stages[index] for summary in runs if not _warns(summary, index)]
    tpots = [stage.value("tpot", "p50") or 0.0 for stage in quiet]
    rates = [stage.value("throughput") or 0.0 for stage in quiet]
    errors = np.array(rates) / throughput - 1
    return Bias(
        step,
        crowd,
        len(runs),
        len(runs) - len(quiet),
        float(np.mean(tpots)) / tpot - 1 if quiet else None,
        float(errors.mean()) if quiet else None,
        float(errors.std(ddof=1) / len(errors) ** 0.5) if len(quiet) > 1 else None,
    )


def _warns(summary: RunSummary, index: int) -> bool:
    return any(
        finding.kind in WARNINGS and finding.stage is not None and finding.stage.index == index
        for finding in summary.findings
    )
