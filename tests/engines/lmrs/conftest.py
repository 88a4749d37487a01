"""A model of Llama 3.2's kind, small enough to be made on the fly."""

import pytest

from engines.contract.base import Model
from tests.support.engines.lmrs_model import write_tiny_llama


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))
