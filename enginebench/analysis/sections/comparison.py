"""Engine against engine at the common load, metric by metric: throughput as ratios, latencies as changes."""

from __future__ import annotations

from enginebench.analysis.document import Cell, Column, Number, Section, Style, Table, Tone, Word, p_value
from enginebench.analysis.frame import Frame
from enginebench.analysis.verdict.comparison import Comparison


def comparison(frame: Frame) -> Section:
    """Compare each engine with the next best one, then with the baseline."""
    pairs = dict.fromkeys((compared.engine, compared.over) for compared in frame.comparisons)
    tables = [_table(frame, engine, over) for engine, over in pairs]
    return Section("comparison", f"Comparison at {frame.stage}", tuple(tables), folded=len(tables) > 3)


def _table(frame: Frame, engine: str, over: str) -> Table:
    rows = [_row(frame, c) for c in frame.comparisons if (c.engine, c.over) == (engine, over)]
    headings = (
        Column("metric", text=True),
        Column(engine),
        Column(over),
        Column(f"{engine} over {over}"),
        Column("significant", text=True),
        Column("p", rank=1),
    )
    return Table(f"compare-{engine}-{over}", f"{engine} over {over}", headings, tuple(rows)).without_empty_columns()


def _row(frame: Frame, compared: Comparison) -> tuple[Cell, ...]:
    column = compared.column
    ours, theirs = (frame.engine(name).shown(compared.stage, column) for name in (compared.engine, compared.over))
    tone = Tone.PLAIN
    if compared.significant and compared.better is not None:
        tone = Tone.GOOD if compared.better else Tone.BAD
    style: Style = "ratio" if column.better == "higher" else "change"
    change = Number(compared.ratio, "×", style, tone) if column.relative else Number(compared.ratio, "share", tone=tone)
    significant = None if compared.significant is None else Word("yes" if compared.significant else "no")
    numbers = (Number(ours, column.unit), Number(theirs, column.unit), change)
    return Word(column.full_title), *numbers, significant, p_value(compared.p)
