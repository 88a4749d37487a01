"""Whether engines give the same answers, and how well they predict a fixed text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from enginebench.analysis.data.answer_differences import ASKED, AnswerDifference, difference_of, kept_answers
from enginebench.analysis.data.requests_table import has_columns, scan, stored_table
from enginebench.analysis.document import (
    ENGINE,
    LOAD,
    Block,
    Cell,
    Column,
    Number,
    Section,
    Table,
    Word,
    count,
    p_value,
    part,
    word,
)
from enginebench.analysis.frame import Frame
from enginebench.analysis.sections.candidates import GRADED, correct
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.quality import Quality, QualityAgainst, against
from enginebench.records.request import RequestRecord
from enginebench.records.view import Estimate


@dataclass(frozen=True, slots=True)
class SameAnswers:
    """`identical` of the `prompts` that both engines answered at the stage always got the same answer. The engine gave
    a single answer to `steady` of its `repeated` prompts: a greedy engine can only give a second answer because of the
    other work that it computes at the same time."""

    prompts: int
    identical: int
    repeated: int
    steady: int
    difference: AnswerDifference | None = None  # if texts were kept


def answers(frame: Frame) -> Section:
    qualities = {run.label: run.quality for run in frame.runs if run.quality is not None}
    tables = (_graded(frame), _answers(frame), quality_table(qualities))
    blocks: tuple[Block, ...] = tuple(table for table in tables if table is not None)
    return Section("answers", "Answers", blocks)


def _graded(frame: Frame) -> Table | None:
    """Show how many questions with exact answers were answered correctly, and how many changed under load."""
    rows: list[tuple[Cell, ...]] = []
    for engine, loads in frame.graded.items():
        for load in loads:
            cells: list[Cell] = [Word(engine), Word(load.stage), correct(load)]
            if load.p is None:
                cells += [None] * 4
            else:
                cells += [part(load.alone / load.pairs, load.pairs), count(load.lost), count(load.gained)]
                cells.append(p_value(load.p))
            rows.append(tuple(cells))
    titles = (GRADED.title, "same questions, 1 user", "lost under load", "gained", "p")
    headings = (ENGINE, LOAD, *(Column(title) for title in titles))
    title = "Answers to questions with an exact answer; p by McNemar's test"
    return Table("graded", title, headings, tuple(rows), 0).without_empty_columns() if rows else None


def _answers(frame: Frame) -> Table | None:
    """Compare with the baseline or, without one, with the best engine."""
    base = frame.baseline or (frame.names[0] if len(frame.names) > 1 else None)
    if base is None or frame.stage is None:
        return None
    compared = {
        name: same_answers(frame.engine(name).runs, frame.engine(base).runs, frame.stage)
        for name in frame.names
        if name != base
    }
    rows = [_row(frame, name, same) for name, same in compared.items() if same is not None and same.prompts]
    if not rows:
        return None
    headings = (
        ENGINE,
        Column("format", text=True, rank=1),
        Column(f"same answers as {base}"),
        Column("same answers when asked again", rank=2),
        Column("first difference", rank=3),
        Column("largest log-probability difference before it", rank=4),
    )
    title = f"Greedy answers to the same prompts at {frame.stage}"
    return Table("same-answers", title, headings, tuple(rows), 0).without_empty_columns()


def _row(frame: Frame, name: str, same: SameAnswers) -> tuple[Cell, ...]:
    difference = same.difference
    return (
        Word(name),
        word(frame.tested.formats.get(name)),
        part(same.identical / same.prompts, same.prompts),
        part(same.steady / same.repeated, same.repeated) if same.repeated else None,
        None
        if difference is None or difference.earliest is None
        else Word(f"{difference.unit} {difference.earliest:,}"),
        None if difference is None or difference.logprob is None else Number(Estimate(difference.logprob)),
    )


def same_answers(engine: Sequence[RunSummary], baseline: Sequence[RunSummary], stage: str) -> SameAnswers | None:
    """Compare all runs of both engines, regardless of repeat; `None` if answers were sampled or not recorded."""
    if any(run.workload.get("temperature", 0) for run in (*engine, *baseline)):
        return None
    ours, theirs = (_digests(runs, stage) for runs in (engine, baseline))
    if ours is None or theirs is None:
        return None
    both = ours.join(theirs, on=ASKED, suffix="_other", nulls_equal=True)
    one_answer = pl.col("answers").list.len() == 1
    identical = both.filter(one_answer & (pl.col("answers") == pl.col("answers_other")))
    again = ours.filter(pl.col("times") > 1)
    difference = difference_of(_texts(engine, stage), _texts(baseline, stage))
    return SameAnswers(len(both), len(identical), len(again), len(again.filter(one_answer)), difference)


def _texts(runs: Sequence[RunSummary], label: str) -> list[RequestRecord]:
    """List the answers of a stage whose texts were kept."""
    places = [(run, stage.index) for run in runs if (stage := run.at(label)) is not None]
    kept = ((answer, index) for run, index in places for answer in kept_answers(Path(run.folder), run.workload))
    return [answer for answer, index in kept if answer.stage == index]


def _digests(runs: Sequence[RunSummary], label: str) -> pl.DataFrame | None:
    """Return each question's distinct answers in order, and how often it was answered in the stage, including warm-up;
    `None` if no run has a table of its requests."""
    parts = [part for run in runs if (part := _answered(run, label)) is not None]
    columns = [pl.col(*ASKED, "answer_digest")]
    answered = [part.filter(pl.col("answer_digest").is_not_null()).select(columns).collect() for part in parts]
    if not answered:
        return None
    distinct = pl.col("answer_digest").unique().sort()
    return pl.concat(answered).group_by(ASKED).agg(answers=distinct, times=pl.len())


def _answered(run: RunSummary, label: str) -> pl.LazyFrame | None:
    stage, table = run.at(label), stored_table(run.folder)
    if stage is None or not has_columns(table):
        return None
    return scan(table).filter(pl.col("prompt_id").is_not_null(), stage=stage.index, outcome="ok")


def quality_table(qualities: Mapping[str, Quality]) -> Table | None:
    """Show how well each engine predicts a fixed text, against the first that has log-probabilities."""
    base = next((quality for quality in qualities.values() if quality.logprobs), None)
    if base is None:
        return None
    rows = tuple(tuple(_quality_cells(against(name, own, base))) for name, own in qualities.items())
    headings = (
        ENGINE,
        Column("format", text=True, rank=1),
        Column("perplexity"),
        Column("change"),
        Column("largest log-probability difference"),
    )
    return Table("quality", "Quality on a fixed text", headings, rows, 0).without_empty_columns()


def _quality_cells(own: QualityAgainst) -> Iterator[Cell]:
    yield Word(own.engine)
    yield word(own.dtype)
    yield None if own.perplexity is None else Number(Estimate(own.perplexity))
    yield None if own.perplexity_over is None else Number(Estimate(1 + own.perplexity_over), "×", "change")
    yield None if own.difference is None else Number(Estimate(own.difference))
