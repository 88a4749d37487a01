"""A study on disk, half of which was skipped, and its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from enginebench.studies.report.contents import StudyReport
from enginebench.studies.report.document import write_report
from tests.support.studies import write_study


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(tmp_path_factory.mktemp("studies") / "brief")


@pytest.fixture(scope="session")
def report(folder: Path) -> StudyReport:
    made, _ = write_report(folder)
    return made
