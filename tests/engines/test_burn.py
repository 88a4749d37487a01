"""What Burn refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engines.contract.errors import EngineUnavailable
from engines.models.fetch import fetch_model
from tests.support.engines.rust_answers import PROMPT, first_words

pytestmark = pytest.mark.xdist_group("burn")


async def test_what_it_cannot_run_is_refused_with_a_sentence(rust_program: Callable[[str], Path]) -> None:
    rust_program("burn")
    with pytest.raises(EngineUnavailable, match="runs the families llama, mistral and qwen2; this model is a mamba"):
        await first_words("burn", fetch_model("random:mamba-130m"), {}, PROMPT)
    with pytest.raises(EngineUnavailable, match=r"there is no device `abacus` in this build; it has: .*cpu"):
        await first_words("burn", fetch_model(), {"device": "abacus"}, PROMPT)
