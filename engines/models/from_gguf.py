"""Convert a GGUF file to a folder of safetensors, tokenizer and chat template, for the engines that need these.

It runs in a separate process, because it imports torch and the server must not:

    python -m engines.models.from_gguf GGUF FOLDER

The weights are written as 32-bit floats unless that is too large: a dequantised weight is a product and a sum of
16-bit floats, which bfloat16 would round again. So every engine starts from the same exact weights and rounds them to
its own number format.

Llama 3's rotary scaling is a tensor of factors in GGUF, `rope_freqs.weight`, and four parameters in `config.json`. The
reader of Transformers ignores the tensor, and other scalings too: the model would give other answers without a warning.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from enginebench.settings.system import last_line
from engines.contract.errors import EngineUnavailable
from engines.machine.extras import install_command
from engines.models.stored import llama_3_factors

NEEDED = ("torch", "transformers", "gguf", "accelerate", "safetensors")
MAX_EXACT_BYTES = 1_000_000_000  # size of a GGUF file; a larger one is written as bfloat16
ROOT = Path(__file__).resolve().parents[2]
# As in every Llama from 3.1 to 3.3; only the factor differs, and it is the largest in the tensor.
LLAMA_3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
TOLERANCE = 1e-4  # relative difference of a factor, which the tensor has in 32 bits
INSTEAD = "name the model's original folder of safetensors instead"


def convert(gguf: Path, folder: Path) -> None:
    """Fill `folder`, in a child process. Raises `EngineUnavailable` with the reason."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise EngineUnavailable(
            f"converting {gguf.name} needs {', '.join(missing)}; install with: {install_command('transformers')}"
        )
    command = [sys.executable, "-m", "engines.models.from_gguf", str(gguf.resolve()), str(folder.resolve())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise EngineUnavailable(f"{gguf.name} could not be converted: {last_line(done.stderr) or 'no message'}")


def _convert(gguf: Path, folder: Path) -> None:
    scaling = rotary_scaling(gguf)  # refuse unsupported files before the next imports, which take seconds

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = torch.float32 if gguf.stat().st_size <= MAX_EXACT_BYTES else torch.bfloat16
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=dtype)
    # The weights are plain floats now, but `save_pretrained` refuses a model that is marked as quantised.
    model.hf_quantizer, model.is_quantized = None, False
    del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _complete_config(folder / "config.json", str(dtype).removeprefix("torch."), scaling)
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors writes its files for their owner only; a cache may be shared


def rotary_scaling(gguf: Path) -> dict[str, Any] | None:
    """Return the fields that `rope_parameters` needs in addition to the base; `None` without scaling.

    Raises `EngineUnavailable` for a scaling that `rope_parameters` cannot express.
    """
    from gguf import GGUFReader

    reader = GGUFReader(gguf)

    def value(key: str, default: Any) -> Any:
        field = reader.get_field(key)
        return default if field is None else field.contents()

    family = value("general.architecture", "llama")
    kind = value(f"{family}.rope.scaling.type", "none")
    if kind == "linear":
        return {"rope_type": "linear", "factor": float(value(f"{family}.rope.scaling.factor", 1.0))}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if kind != "none" or any(name.startswith("rope_factors") for name in tensors):
        name = "longrope" if kind == "none" else kind
        raise EngineUnavailable(f"its rotary scaling is {name}, which is not converted; {INSTEAD}.")
    if "rope_freqs.weight" not in tensors:
        return None
    factors = [float(factor) for factor in tensors["rope_freqs.weight"].data]
    scaling = {"rope_type": "llama3", "factor": max(factors), **LLAMA_3}
    expected = llama_3_factors(scaling, float(value(f"{family}.rope.freq_base", 10_000.0)), 2 * len(factors))
    if any(abs(factor - true) > TOLERANCE * true for factor, true in zip(factors, expected, strict=True)):
        raise EngineUnavailable(f"its rotary factors are not those of Llama 3; {INSTEAD}.")
    return None if max(factors) == 1 else scaling


def _complete_config(path: Path, dtype: str, scaling: dict[str, Any] | None) -> None:
    """Add fields that Transformers does not read from GGUF files, and older names of fields that engines need."""
    config = json.loads(path.read_text())
    rope = config.get("rope_parameters") or {}
    if scaling is not None:
        config["rope_parameters"] = rope = rope | scaling
    if "rope_theta" in rope:
        scaled = rope.get("rope_type", "default") != "default"
        config["rope_theta"] = rope["rope_theta"]
        config["rope_scaling"] = rope if scaled else None
    config["torch_dtype"] = dtype
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    try:
        _convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except EngineUnavailable as error:
        sys.exit(str(error))
