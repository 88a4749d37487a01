"""Attention kernels: Transformers' implementations, and each kernel of PyTorch's `scaled_dot_product_attention`.

By default PyTorch chooses a kernel for each shape, and falls back to a slower one silently. If a kernel is named, no
other may run, and a model that it does not support is refused while the engine loads. Eager attention and `math` store
the scores of all pairs of tokens, the other kernels one block of scores (Dao et al. 2022).

    enginebench bench transformers --sweep attention=eager,math,flash --prefill 512,1024,2048,4096
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from engines.contract.errors import EngineUnavailable, first_line

if TYPE_CHECKING:
    import torch

Attention = Literal[
    "auto", "eager", "sdpa", "math", "efficient", "flash", "cudnn", "flash_attention_2", "flash_attention_3", "flex"
]
Kernel = Literal["auto", "math", "efficient", "flash", "cudnn"]
"""The kernels of an engine that calls PyTorch's function itself."""
FLEX = "flex"  # compiled by Inductor
KERNELS = "math, efficient (xFormers' kernel), flash, cudnn: only that kernel of PyTorch's sdpa"


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """`implementation` is Transformers' name; `switch` the kernel's in `torch.backends.cuda.enable_…_sdp`."""

    implementation: str
    switch: str | None = None
    devices: tuple[str, ...] = ("cpu", "cuda", "mps")


ATTENTIONS: dict[str, AttentionKernel] = {
    "eager": AttentionKernel("eager"),
    "sdpa": AttentionKernel("sdpa"),
    "math": AttentionKernel("sdpa", "math"),
    "efficient": AttentionKernel("sdpa", "mem_efficient", ("cuda",)),
    "flash": AttentionKernel("sdpa", "flash", ("cpu", "cuda")),
    "cudnn": AttentionKernel("sdpa", "cudnn", ("cuda",)),
    "flash_attention_2": AttentionKernel("flash_attention_2", None, ("cuda",)),
    "flash_attention_3": AttentionKernel("flash_attention_3", None, ("cuda",)),
    FLEX: AttentionKernel("flex_attention", None, ("cpu", "cuda")),
}
REPEATING = "sdpa_repeating_heads"
SWITCHES = ("math", "mem_efficient", "flash", "cudnn")


def choose(attention: str, device: torch.device) -> str | None:
    """Return Transformers' name of the implementation (`None`: it decides), and switch off PyTorch's other kernels.

    This affects the whole process. Raises `EngineUnavailable` if the device has no such kernel.
    """
    import torch

    if attention == "auto":
        return None
    kernel = ATTENTIONS[attention]
    if device.type not in kernel.devices:
        available = [name for name, kind in ATTENTIONS.items() if device.type in kind.devices]
        raise EngineUnavailable(
            f"attention={attention} runs on {' and '.join(kernel.devices)}, not on {device.type}; there are "
            f"{', '.join(available)}."
        )
    for switch in SWITCHES if kernel.switch is not None else ():
        getattr(torch.backends.cuda, f"enable_{switch}_sdp")(switch == kernel.switch)
    return kernel.implementation


def repeating_heads() -> str:
    """Register Transformers' `sdpa` with keys and values repeated for the heads that share them, and return its name.

    Transformers repeats them only with a mask. Without one it passes groups, which `efficient` does not take.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def forward(module: Any, query: Any, key: Any, value: Any, *rest: Any, **settings: Any) -> Any:
        ungrouped: Any = SimpleNamespace(is_causal=getattr(module, "is_causal", True))
        groups = query.shape[1] // key.shape[1]
        return sdpa_attention_forward(
            ungrouped, query, repeat_kv(key, groups), repeat_kv(value, groups), *rest, **settings
        )

    AttentionInterface.register(REPEATING, forward)
    AttentionMaskInterface.register(REPEATING, sdpa_mask)
    return REPEATING


@contextmanager
def tried_out(attention: str, dtype: str) -> Iterator[None]:
    """Wrap the first steps. Raises `EngineUnavailable` if the kernel does not take such heads or numbers."""
    try:
        yield
    except EngineUnavailable:
        raise
    except (RuntimeError, ValueError, ImportError) as error:
        if attention == "auto":
            raise
        raise EngineUnavailable(
            f"attention={attention} cannot compute this model in {dtype} here: {first_line(error).rstrip('.')}."
        ) from error
