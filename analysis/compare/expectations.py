"""Expected ratios of an engine to the baseline, from a dated data file with hardware, model and source.

An expectation holds for its own conditions. Runs under other ones are shown beside it and not judged by it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from analysis.units import in_words, significant
from analysis.verdict.statistics import Answer, Estimate
from analysis.verdict.summary import RunSummary

PATH = Path(__file__).with_name("expectations.json")


@dataclass(frozen=True, slots=True)
class Expectation:
    """How many times better than the baseline an engine should be: in latency, and in tokens per second.

    `met` and `missed` are only answered where `unlike` is empty: it says in what the run's conditions are others.
    """

    latency: float
    throughput: float
    unlike: tuple[str, ...]

    def judge(self, latency: Estimate, throughput: Estimate) -> Answer | None:
        """By the ratios' intervals; `None` under other conditions."""
        if self.unlike:
            return None
        pairs = ((self.latency, latency), (self.throughput, throughput))
        if any(ratio.high is not None and ratio.high < wanted for wanted, ratio in pairs):
            return "missed"
        met = all(ratio.low is not None and ratio.low >= wanted for wanted, ratio in pairs)
        return "met" if met else "not enough evidence"


@cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return document


def expectation_of(run: RunSummary, baseline: RunSummary, stage: str) -> Expectation | None:
    """`None` where the file has none for this engine, or another baseline."""
    document = _document()
    name, against = (_engine(one) for one in (run, baseline))
    found = document["engines"].get(name)
    if found is None or against != document["baseline"]["engine"]:
        return None
    base, ours = document["baseline"]["values"], found["values"]
    return Expectation(
        latency=base["latency"] / ours["latency"],
        throughput=ours["throughput"] / base["throughput"],
        unlike=_unlike(run, stage, document["conditions"]),
    )


def _engine(run: RunSummary) -> str:
    return str((run.engine or {}).get("name") or run.label)


def _unlike(run: RunSummary, label: str, conditions: dict[str, Any]) -> tuple[str, ...]:
    engine, stage = run.engine or {}, run.at(label)
    hardware = " ".join(str(value) for value in (engine.get("device"), run.host.get("gpu")) if value)
    said = []
    if not any(_plain(name) in _plain(hardware) for name in conditions["hardware"]):
        said.append(f"{' or '.join(conditions['hardware'])}")
    if _plain(conditions["model"]) not in _plain(str(run.model)):
        said.append(str(conditions["model"]))
    if _plain(conditions["format"]) not in _plain(str(engine.get("dtype"))):
        said.append(str(conditions["format"]))
    if stage is None or stage.load_unit != "users" or stage.load != conditions["requests_at_a_time"]:
        said.append("one request at a time")
    return tuple(said)


def _plain(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def caption(expectations: list[Expectation]) -> str:
    """Under what conditions they hold, from where they are, and why they are not judged; empty without one."""
    if not expectations:
        return ""
    document = _document()
    where = document["conditions"]
    text = (
        f"Expected: latency and throughput ratio for one request of {where['model']} {where['format']} on "
        f"{' or '.join(where['hardware'])} ({document['source']}, {document['dated']})."
    )
    unlike = list(dict.fromkeys(condition for one in expectations for condition in one.unlike))
    return f"{text} Not judged here: these runs are not of {in_words(unlike)}." if unlike else text


def as_text(expectation: Expectation | None) -> str:
    """`7.5× / 5×`"""
    if expectation is None:
        return ""
    return " / ".join(f"{significant(ratio, 2)}×" for ratio in (expectation.latency, expectation.throughput))
