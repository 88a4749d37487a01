"""A model in safetensors as a GGUF file, for engines that read nothing else. It is written once per model and format.

Llama, Mistral and Qwen2: their tensors under GGUF's names, with the rows of queries and keys in the order that Llama's
GGUF files have (interleaved rotary pairs). Matrices are floats of 16 or 32 bits or blocks of Q8_0 or Q4_0, the rest
32-bit floats. https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from engines.models.cache import converted_once
from engines.models.random_model import with_weights
from engines.models.stored import (
    FLOAT_BYTES,
    end_ids,
    head_size,
    key_heads,
    llama_3_factors,
    rotary_of,
    tensors_of,
    weight_files,
)

Format = Literal["float32", "float16", "bfloat16", "q8_0", "q4_0"]
FORMATS: dict[Format, str] = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "q8_0": "Q8_0", "q4_0": "Q4_0"}
ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2"}
FORM = 3  # version of the written file; another version is another file
BLOCK = 32
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # token types


def format_of(dtype: str, has_gguf: bool) -> str:
    """Return the number format that an engine's option means: `auto` is a GGUF file as it is, else 16-bit floats."""
    return dtype if dtype != "auto" else "gguf" if has_gguf else "float16"


def file_for(model: Model, dtype: str) -> tuple[Path, str]:
    """Return the GGUF file that an engine loads for its option `dtype`, and the format. Raises `EngineUnavailable`."""
    format = format_of(dtype, model.gguf is not None)
    if format != "gguf":
        return gguf_of(model, cast(Format, format)), format
    if model.gguf is None:
        raise EngineUnavailable(f"{model.name} did not come as a GGUF file; leave dtype=gguf out.")
    return model.gguf, format


def gguf_of(model: Model, format: Format) -> Path:
    """Return the file. Raises `EngineUnavailable` for a model that it cannot hold."""
    config = json.loads((model.folder / "config.json").read_text())
    if config.get("model_type") not in ARCHITECTURES:
        raise EngineUnavailable(
            f"only {', '.join(ARCHITECTURES)} are written as GGUF, not {config.get('model_type')}; give a .gguf file."
        )
    model = with_weights(model)
    names = ("config.json", "generation_config.json", "tokenizer.json")
    sources = [path for name in names if (path := model.folder / name).is_file()] + weight_files(model.folder)
    folder = converted_once(
        model,
        f"gguf/{format}",
        sources,
        lambda unfinished: _write(model, config, format, unfinished / "model.gguf"),
        version=FORM,
        needs_bytes=sum(path.stat().st_size for path in weight_files(model.folder)),
    )
    return folder / "model.gguf"


def _write(model: Model, config: Mapping[str, Any], format: Format, path: Path) -> None:
    try:
        import gguf
    except ImportError as error:
        raise EngineUnavailable("writing GGUF needs the package gguf; install it with: pip install gguf") from error
    writer = gguf.GGUFWriter(path, ARCHITECTURES[config["model_type"]])
    writer.add_file_type(gguf.LlamaFileType[f"{'ALL' if format == 'float32' else 'MOSTLY'}_{FORMATS[format]}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    _add_shape(writer, model.name, config)
    _add_vocabulary(writer, json.loads((model.folder / "tokenizer.json").read_text()), config, end_ids(model.folder))
    for name, weights in _tensors(model.folder, config):
        kind = gguf.GGMLQuantizationType.F32
        if weights.ndim == 2 and (format in {"float32", "float16", "bfloat16"} or weights.shape[1] % BLOCK == 0):
            kind = gguf.GGMLQuantizationType[FORMATS[format]]
        writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
    factors = _rotary_factors(config)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: Any, name: str, config: Mapping[str, Any]) -> None:
    head = head_size(config)
    writer.add_name(name)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(key_heads(config))
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(float(rotary_of(config)["rope_theta"]))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def _add_vocabulary(
    writer: Any, tokenizer: Mapping[str, Any], config: Mapping[str, Any], ends_at: Collection[int]
) -> None:
    """Add the vocabulary for the text of answers: prompts are given as token ids."""
    model, size = tokenizer["model"], config["vocab_size"]
    if model.get("type") != "BPE":
        raise EngineUnavailable(f"a {model.get('type')} vocabulary cannot be written as GGUF; give a .gguf file.")
    added = {token["id"]: token for token in tokenizer.get("added_tokens", ())}
    tokens = {id: text for text, id in model["vocab"].items()} | {id: token["content"] for id, token in added.items()}
    texts = [tokens.get(id, f"[unused {id}]") for id in range(size)]
    from_sentencepiece = bool(model.get("byte_fallback"))
    types = [_type_of(id, text, added, from_sentencepiece) for id, text in enumerate(texts)]
    writer.add_tokenizer_model("llama" if from_sentencepiece else "gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(texts)
    writer.add_token_types(types)
    if from_sentencepiece:
        writer.add_token_scores([0.0] * size)
    else:
        pairs = (pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"])
        writer.add_token_merges(list(pairs))
    if (first := config.get("bos_token_id")) is not None:
        writer.add_bos_token_id(first)
    # llama.cpp ends an answer at each of the three.
    ends = (writer.add_eos_token_id, writer.add_eot_token_id, writer.add_eom_token_id)
    for add, id in zip(ends, sorted(ends_at), strict=False):
        add(id)
    writer.add_add_bos_token(False)


def _type_of(id: int, text: str, added: Mapping[int, Mapping[str, Any]], from_sentencepiece: bool) -> int:
    if id in added and added[id].get("special"):
        return UNKNOWN if text == "<unk>" else CONTROL
    is_byte = from_sentencepiece and len(text) == 6 and text.startswith("<0x") and text.endswith(">")
    return BYTE if is_byte else NORMAL


def _tensors(folder: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield GGUF's names with 32-bit floats."""
    import gguf

    kind = gguf.MODEL_ARCH[ARCHITECTURES[config["model_type"]].upper()]
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    for name, tensor in tensors_of(folder).items():
        gguf_name = names.get_name(name, (".weight", ".bias"))
        if gguf_name is None or (name == "lm_head.weight" and config.get("tie_word_embeddings")):
            continue
        if tensor.dtype not in FLOAT_BYTES:
            raise EngineUnavailable(
                f"{tensor.file} holds {tensor.dtype}, and only {', '.join(FLOAT_BYTES)} are written as GGUF."
            )
        weights = tensor.floats().reshape(tensor.shape)
        if config["model_type"] != "qwen2" and ("q_proj" in name or "k_proj" in name):
            heads = config["num_attention_heads"] if "q_proj" in name else key_heads(config)
            weights = _interleaved(weights, heads)
        yield gguf_name, weights


def _interleaved(weights: Any, heads: int) -> Any:
    """Interleave the rotary halves of each head: (heads, 2, half) becomes (heads, half, 2)."""
    import numpy as np

    rows = weights.shape[0]
    return np.ascontiguousarray(weights.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2)).reshape(weights.shape)


def _rotary_factors(config: Mapping[str, Any]) -> Any:
    """Return Llama 3's scaling as a divisor of each frequency; `None` without scaling. Raises `EngineUnavailable`."""
    import numpy as np

    rope = rotary_of(config)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise EngineUnavailable(f"rotary scaling of the kind {kind} cannot be written as GGUF; give a .gguf file.")
    return np.array(llama_3_factors(rope, float(rope["rope_theta"]), head_size(config)), dtype=np.float32)
