"""The headline table and picture of README.md, from a committed study.

    python -m enginebench.studies.report.readme docs/results/brief-amd-epyc-2-cores

It writes what stands between `<!-- results: … -->` and `<!-- /results -->` in README.md, from the study's tidy frame
alone: each number is one of `report.md`, and `enginebench report` finds it again in the study's records.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from enginebench.analysis.compare.capacity import load_text
from enginebench.analysis.compare.engine_runs import DECIDING
from enginebench.analysis.console import TextTable
from enginebench.records.files import write_atomically
from enginebench.records.formatting import MISSING, format_interval, format_ratio, format_seconds, significant
from enginebench.settings.schema import UserMistake
from enginebench.studies.report.document import CARD, PICTURE, SERVED
from enginebench.studies.report.page import split

README = Path("README.md")
FRAME, PAGE = "frame.parquet", "report.md"
SHOWN = "TTFT p99 against users with 95 % intervals, the limit of the SLO, and the users that each engine holds"
BETWEEN = re.compile(r"<!-- results:(?: (?P<folder>\S+))? -->\n.*?<!-- /results -->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Headline:
    """The part that decides: its frame, model and stage, the machine, and the answer."""

    frame: pl.DataFrame
    model: str
    stage: str
    machine: str
    answer: str

    @staticmethod
    def of(folder: Path) -> Headline:
        """Raises `UserMistake` where there is no frame, or nothing was decided in it."""
        try:
            frame = pl.read_parquet(folder / FRAME)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise UserMistake(f"{folder / FRAME} cannot be read ({error}): publish a study there first.") from None
        heads = frame.filter(metric="head")
        if heads.is_empty():
            raise UserMistake(f"the study in {folder} has no part under load, so there is no headline of it.")
        head = heads.row(0, named=True)
        here = frame.filter(part=head["part"], model=head["model"])
        machine, answer = (frame.filter(metric=name)["why"].item() for name in ("machine", "answer"))
        return Headline(here, head["model"], head["stage"], machine, answer)

    def row(self, **where: str) -> dict[str, Any]:
        """The one row; empty where there is none."""
        found = self.frame.filter(**where)
        return found.row(0, named=True) if len(found) else {}

    @property
    def baseline(self) -> str:
        over = [name for name in self.frame["statistic"].drop_nulls() if name.startswith("ratio over ")]
        labels = [name.removeprefix("ratio over ") for name in over]
        return max(labels, key=labels.count, default="")


def section(folder: Path, shown_as: str = "") -> str:
    """What README shows; `shown_as` is the folder as its links have it."""
    place, head = shown_as or folder.as_posix(), Headline.of(folder)
    table, (answer, rest) = _table(head), split(head.answer)
    compared, limits = split(rest)
    picture, shows = (PICTURE, SHOWN) if (folder / PICTURE).exists() else (CARD, "The answer and one chart")
    parts = [
        f"**{answer}** {compared}".rstrip(),
        f"[![{shows}]({place}/{picture})]({place}/{PAGE})",
        table.markdown,
        f"{table.caption} {limits}".rstrip() + f" [Report]({place}/{PAGE}), [how to read it](docs/reading-a-study.md).",
    ]
    return "\n".join([f"<!-- results: {place} -->", "\n\n".join(parts), "<!-- /results -->"])


def _table(head: Headline) -> TextTable:
    """The engines in the order of the comparison: best first."""
    capacities = head.frame.filter(pl.col("metric").str.starts_with("capacity ")).unique("label", keep="first")
    held = {row["label"]: row for row in capacities.iter_rows(named=True)}
    served = head.frame.filter(metric=DECIDING, statistic=SERVED, stage=head.stage)
    rows = tuple(_row(head, row, held.get(row["label"])) for row in served.iter_rows(named=True))
    headers = ("engine", "users within the SLO", f"tokens/s at {head.stage}", f"over {head.baseline}", "TTFT p99")
    caption = (
        f"{head.model} on {head.machine}: means over the repeats at {head.stage}; in parentheses: the load that misses "
        "the SLO."
    )
    table = TextTable("", headers, rows, (0,), caption)
    return table if held else table.without(["users within the SLO"])


def _row(head: Headline, served: dict[str, Any], capacity: dict[str, Any] | None) -> tuple[str, ...]:
    label = served["label"]
    ratio = head.row(label=label, metric=DECIDING, statistic=f"ratio over {head.baseline}", stage=head.stage)
    here = head.frame.filter(pl.col("metric").is_in(["ttft", "ttft_user"]), label=label, stage=head.stage)
    ttft = here.filter(statistic=f"p99 {SERVED}").to_dicts()
    tokens = f"{significant(served['value'])} {format_interval(served['low'], served['high'])}".strip()
    return (
        label,
        MISSING if capacity is None else _held(capacity),
        tokens,
        "1" if label == head.baseline else MISSING if not ratio else _ratio(ratio),
        _seconds(ttft[0]) if ttft else MISSING,
    )


def _held(capacity: dict[str, Any]) -> str:
    """`14 (20)`: 14 meet the objectives, and 20 do not. `≥ 14`: no load is known not to."""
    met, missed = capacity["value"], capacity["high"]
    if met is None:
        return f"< {load_text(missed)}" if missed is not None else "undecided"
    return f"{load_text(met)} ({load_text(missed)})" if missed is not None else f"≥ {load_text(met)}"


def _seconds(time: dict[str, Any]) -> str:
    ends = [format_seconds(time[end]) for end in ("low", "high") if time[end] is not None]
    return f"{format_seconds(time['value'])} [{', '.join(ends)}]" if len(ends) == 2 else format_seconds(time["value"])


def _ratio(ratio: dict[str, Any]) -> str:
    return MISSING if ratio["value"] is None else format_ratio(ratio["value"], ratio["low"], ratio["high"])


def write_readme(folder: Path, readme: Path = README) -> None:
    """Raises `UserMistake`."""
    text = readme.read_text(encoding="utf-8")
    if BETWEEN.search(text) is None:
        raise UserMistake(f"{readme} has no `<!-- results: … -->` with `<!-- /results -->` behind it.")
    write_atomically(readme, BETWEEN.sub(lambda _: section(folder), text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the committed study, such as docs/results/brief-amd-epyc-2-cores")
    arguments = parser.parse_args()
    try:
        write_readme(arguments.folder)
    except UserMistake as mistake:
        sys.exit(str(mistake))


if __name__ == "__main__":
    main()
