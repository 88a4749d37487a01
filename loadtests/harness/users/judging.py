"""Whether the stages of a run that goes on have met its objectives, as a report on them says.

The answers need intervals, which the counts of a live view do not have: where a stage has ended since the last look,
the run so far is analysed in a process of its own, which gets only the time that no other process wants.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from enginebench.records.rules import overall
from enginebench.records.stage import Stage
from loadtests.harness.command.server_process import PYTHON

logger = logging.getLogger(__name__)

ANALYSIS = "enginebench.analysis.summary.loading"  # writes the run's summary.json
LOWEST_PRIORITY = 19


class Judge:
    """Of the run in one folder. `close` ends what it has started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: tuple[int, bool] = (0, False)  # stages that were over, and whether the run was
        self.answers: Mapping[str, str] = {}
        """By the label of a stage: `met`, `missed` or `not enough evidence`."""

    def look(self, stages: tuple[Stage, ...], over: bool) -> None:
        """Read what has been found, and have it found anew where a stage has ended since; returns at once."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._process = None
            if code == 0:
                self.answers = read_answers(self._folder)
        ask = (sum(stage.end is not None for stage in stages), over)
        if ask != self._asked and ask[0]:
            self._asked = ask
            self._process = _start([*PYTHON, "-m", ANALYSIS, str(self._folder)])

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()


def read_answers(folder: Path) -> dict[str, str]:
    """Of each stage whose objectives were judged; those of the first tier."""
    try:
        stages = json.loads((folder / "summary.json").read_text())["stages"]
    except (OSError, ValueError, KeyError) as error:
        logger.debug("there is no summary of the run so far: %s", error)
        return {}
    answers: dict[str, str] = {}
    for stage in stages:
        judged = stage["judgements"]
        first = [each["answer"] for each in judged if each["objective"]["tier"] == judged[0]["objective"]["tier"]]
        if first:
            answers[stage["label"]] = overall(first)
    return answers


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    with suppress(AttributeError, OSError):  # not on every system
        os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST_PRIORITY)
        os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
    return process
