"""Settings that several commands of the analysis share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from enginebench.records.metrics import OBJECTIVES
from enginebench.records.slo import Objective, parse_objectives, write_objectives
from enginebench.settings.schema import setting

CRITICAL = 0.2  # worse by more than this, as a share of the baseline, a gate fails


def parse_slo(text: str) -> tuple[Objective, ...]:
    """Read one objective from each line. Raises `UserMistake`."""
    return parse_objectives(text.splitlines())


def slo_setting(group: str = "") -> tuple[Objective, ...]:
    """`--slo METRIC_pN=TIME`, as often as there are objectives; those of a tier have its name before them."""
    declared: tuple[Objective, ...] = setting(
        (),
        f"Objective, such as ttft_p99=500ms; may be repeated. METRIC is one of {', '.join(OBJECTIVES)}. A "
        "tier goes before its objectives: fast:ttft_p95=300ms,tpot_p95=30ms.",
        metavar="SLO",
        read=parse_slo,
        write=write_objectives,
        group=group,
        repeatable=True,
    )
    return declared


@dataclass(frozen=True, slots=True)
class RunsSettings:
    runs: Path = setting(Path("runs"), "Folder of the runs.", metavar="FOLDER")
    tokenizer: Path | None = setting(
        None,
        "A tokenizer.json, to count the answers of servers that send no usage. It is remembered for these runs.",
        metavar="FILE",
    )


@dataclass(frozen=True, slots=True)
class ReadSettings(RunsSettings):
    """The folder of the runs, and the objectives that judge them."""

    slo: tuple[Objective, ...] = slo_setting()


@dataclass(frozen=True, slots=True)
class GateSettings:
    """When a gate fails."""

    fail_at: float = setting(
        100 * CRITICAL,
        "Fail if something is worse than the baseline by more than this, in per cent.",
        metavar="PERCENT",
        least=0,
    )
    allow_missing: bool = setting(
        False, "Judge the rest where an engine, a stage, a repeat or a metric of the baseline is missing."
    )
    allow_different: bool = setting(False, "Judge even if the versions differ in scenario, host, model or workload.")
    allow_invalid: bool = setting(False, "Judge despite invalid runs.")
