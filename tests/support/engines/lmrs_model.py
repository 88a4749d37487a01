"""For tests of lm.rs: a model like Llama 3.2 that is small enough to be generated quickly, and a stand-in program."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engines.contract.base import Model
from engines.lmrs.model_file import tensors
from engines.models.presets import LLAMA_3_ROPE

STAND_IN = Path(__file__).with_name("lmrs_stand_in.py")
VOCABULARY = 128_256  # lm.rs has Llama's special token ids in its code
ROPE = LLAMA_3_ROPE | {"rope_theta": 500_000.0}
# Merges in the order in which a byte-pair encoder would learn them from English: Ġ is a space, Ċ the end of a line.
MERGES = (
    "Ġ t|h e|Ġ a|i n|Ġt he|r e|o n|e r|Ġ s|a t|n d|Ġ w|Ġ o|e n|Ġa nd|o u|i s|Ġ b|e a|Ġ1 2|Ġ 1|Ċ Ċ|e ar|ill age|"
    "a g|ag e|i ll|Ġ v|Ġv illage|ĠM ay|m e|ti me"
)


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "rope_parameters": ROPE,
    "tie_word_embeddings": True,
    "bos_token_id": 128_000,
    "eos_token_id": 128_009,
}
SPREAD = 0.4  # spread of the weights, large enough that greedy answers vary


def write_tiny_llama(folder: Path) -> Model:
    """Write a model with two layers of random weights, about 33 MB."""
    import numpy
    from safetensors.numpy import save_file

    draw = numpy.random.default_rng(0)
    weights = {
        name: numpy.ones(columns, numpy.float32)
        if rows == 1
        else draw.standard_normal((rows, columns), numpy.float32) * numpy.float32(SPREAD)
        for name, (rows, columns) in tensors(CONFIG)
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    write_tokenizer_json(folder / "tokenizer.json")
    return Model("tiny-llama-3.2", folder)


def write_tokenizer_json(path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in MERGES.split("|"))]
    vocabulary = {token: id for id, token in enumerate([*characters, *(left + right for left, right in merges)])}
    known = [(left, right) for left, right in merges if left in vocabulary and right in vocabulary]
    vocabulary |= {f"Ġ<{id}>": id for id in range(len(vocabulary), VOCABULARY)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=known))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path))


def write_stand_in(folder: Path) -> Path:
    """Write the stand-in for lm.rs's `backend`, an executable that uses this interpreter."""
    return write_program(folder / "backend", f"import runpy; runpy.run_path({str(STAND_IN)!r}, run_name='__main__')")


def write_program(path: Path, script: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{script}\n")
    path.chmod(0o755)
    return path
