"""Number formats of weights, and the bits that a weight takes in each."""

from __future__ import annotations

BITS: dict[str, float] = {
    "float32": 32.0,
    **dict.fromkeys(("bfloat16", "float16"), 16.0),
    **dict.fromkeys(("int8", "float8", "fp8"), 8.0),
    "q8_0": 8.5,  # a block of 32 has a 16-bit scale
    "q4_0": 4.5,
    "q4_1": 5.0,  # and an offset of 16 bits
    "q4_k": 4.5,
    "int4": 4.5,
}


def quantised_format(quantization: str | None, otherwise: str) -> str:
    """Of weights that vLLM or SGLang quantise while loading; `quantization` as they name it."""
    if quantization == "bitsandbytes":
        return "int4"
    return quantization if quantization in BITS else otherwise
