"""From a GGUF file to a folder of safetensors, tokenizer and chat template, for the engines that need those.

Runs in a process of its own, because it imports torch and the server must not:

    python -m engines.models.gguf.convert GGUF FOLDER

The weights are written as 32-bit floats unless that is too large: a dequantised weight is a product and a sum of
16-bit floats, which bfloat16 would round again. So every engine starts from the same exact weights and rounds them to
its own number format.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engines.contract.base import EngineUnavailable
from engines.models.gguf.rotary import rotary_scaling

NEEDED = ("torch", "transformers", "gguf", "accelerate", "safetensors")
MOST_EXACT_BYTES = 1_000_000_000  # of GGUF; a bigger file is written as bfloat16
ROOT = Path(__file__).resolve().parents[3]


def convert(gguf: Path, folder: Path) -> None:
    """Fill `folder`, in a child process. Raises `EngineUnavailable` with what is missing or what went wrong."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise EngineUnavailable(
            f"converting {gguf.name} needs {', '.join(missing)}; install with: pip install 'enginebench[transformers]'"
        )
    command = [sys.executable, "-m", "engines.models.gguf.convert", str(gguf.resolve()), str(folder.resolve())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise EngineUnavailable(f"{gguf.name} could not be converted: {last}")


def _convert(gguf: Path, folder: Path) -> None:
    scaling = rotary_scaling(gguf)  # refuses what would be lost, before the seconds that the next imports take

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = torch.float32 if gguf.stat().st_size <= MOST_EXACT_BYTES else torch.bfloat16
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


def _complete_config(path: Path, dtype: str, scaling: dict[str, Any] | None) -> None:
    """Add what Transformers does not read from a GGUF file, and the keys of older configurations that engines need."""
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
