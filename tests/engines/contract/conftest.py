"""What Transformers says, for all tests of this folder."""

from __future__ import annotations

import os

import pytest

from tests.support.engines.small_model import small_model
from tests.support.engines.ten_questions import Question, questions_of


@pytest.fixture(scope="session")
def questions(tmp_path_factory: pytest.TempPathFactory) -> list[Question]:
    mine = tmp_path_factory.getbasetemp()
    shared = mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine  # by the workers of pytest-xdist
    return questions_of(small_model(), shared / "transformers-answers")
