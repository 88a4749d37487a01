"""Models of every family with random weights, small enough to be made on the fly, as safetensors and as GGUF files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from engines.contract.base import Model
from engines.models.fetch import fetch_model
from engines.models.random_model import fit_vocabulary
from tests.support.engines.reference import Reference

VOCABULARY = 512
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "initializer_range": 0.1,  # so that one token is likelier than another
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def write_tiny(folder: Path, model_type: str, embedding_scale: float = 1.0, **differs: Any) -> tuple[Model, Reference]:
    """A model of that family in `folder`, and what it should say."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **(SHAPE | differs))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, weights in model.named_parameters():
        if weights.dim() == 1:  # norms begin as ones and biases as zeros, which would hide a mistake
            torch.nn.init.normal_(weights, float("norm" in name), 0.2)
    model.get_input_embeddings().weight.data *= embedding_scale
    model.save_pretrained(folder)
    tokenizer = json.loads((fetch_model().folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(fit_vocabulary(tokenizer, VOCABULARY)))
    return Model(f"tiny-{model_type}", folder), Reference(model)


def write_tiny_gguf(folder: Path, kind: str) -> tuple[Model, Reference]:
    """A Llama whose matrices are all of that kind, alone in a folder with its tokenizer, and what it should say."""
    import torch
    from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
    from gguf.quants import dequantize

    _, said = write_tiny(folder / "original", "llama")
    quantisation = GGMLQuantizationType[kind]
    config = said.model.config
    names = get_tensor_name_map(MODEL_ARCH.LLAMA, config.num_hidden_layers)
    writer = GGUFWriter(folder / "tiny.gguf", "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    for name, weights in said.model.named_parameters():
        short = f"{names.get_name(name.removesuffix('.weight'))}.weight"
        numbers = weights.detach().numpy()
        if numbers.ndim == 2:
            raw = _quantised(numbers, quantisation)
            weights.data = torch.tensor(dequantize(raw, quantisation))
            heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
            if (count := heads.get(name.split(".")[-2])) is not None:  # GGUF keeps rotary pairs side by side
                raw = raw.reshape(count, 2, -1, raw.shape[1]).swapaxes(1, 2).reshape(raw.shape)
            writer.add_tensor(short, raw, raw_dtype=quantisation)
        else:
            writer.add_tensor(short, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(folder / "original" / name, folder)
    return Model(f"tiny-{kind.lower()}", folder, folder / "tiny.gguf"), said


def _quantised(numbers: Any, kind: Any) -> Any:
    import numpy
    from gguf.quants import quantize

    if kind.name != "Q4_K":
        return quantize(numbers, kind)
    # The package reads these blocks and does not make them. Any bytes are one: two 16-bit scales, then small numbers.
    blocks = numpy.random.default_rng(0).integers(0, 256, (numbers.size // 256, 144), dtype=numpy.uint8)
    blocks[:, :4] = numpy.array([4e-4, 3e-3], dtype=numpy.float16).view(numpy.uint8)
    return blocks.reshape(numbers.shape[0], -1)
