"""What Burn refuses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from enginebench.settings.schema import from_text
from engines.contract.errors import EngineUnavailable
from engines.models.fetch import fetch_model
from engines.rust.engines import BurnEngine
from tests.conftest import BackgroundLoop
from tests.support.engines.rust_answers import PROMPT, first_words

pytestmark = pytest.mark.xdist_group("burn")


def test_what_it_cannot_run_is_refused_with_a_sentence(
    rust_program: Callable[[str], Path], background: BackgroundLoop
) -> None:
    rust_program("burn")
    with pytest.raises(EngineUnavailable, match="runs the families llama, mistral and qwen2; this model is a mamba"):
        first_words("burn", fetch_model("random:mamba-130m"), {}, PROMPT, background)
    with pytest.raises(EngineUnavailable, match=r"there is no device `abacus` in this build; it has: .*cpu"):
        first_words("burn", fetch_model(), {"device": "abacus"}, PROMPT, background)


@pytest.mark.parametrize("options", [{}, {"autotune": "full"}])
def test_a_gpu_tries_few_kernels_unless_told_otherwise(
    rust_program: Callable[[str], Path], options: dict[str, str]
) -> None:
    rust_program("burn")
    chosen = from_text(BurnEngine.Options, options)
    environment = BurnEngine.launch(chosen, None).environment
    assert environment["CUBECL_AUTOTUNE_LEVEL"] == options.get("autotune", "minimal")
