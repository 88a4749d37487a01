"""Models: of true shape, out of a wheel, a GGUF file or a folder, or drawn at random."""

import hashlib
import json
import math
import os
import random
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from engines.models.cache import cache_folder
from engines.models.fetch import DEFAULT, context_length, conversion_folder, fetch_model
from engines.models.from_gguf import rotary_scaling
from engines.models.presets import LLAMA_3_ROPE, PRESETS, Preset
from engines.models.random_model import _write_weights
from engines.models.size import STACK, context_of, kept_values
from engines.models.to_gguf import gguf_of
from engines.models.tokenizer import make_tokenizer
from engines.models.wheel import GGUF_NAME, GGUF_SHA256
from engines.text.detokenize import tokenizer_of
from tests.support.engines.tiny_models import write_tiny
from tests.support.engines.torch_when_used import torch

pytestmark = pytest.mark.xdist_group("torch")

# What is written down about known models.


LIBRARY_KNOWS = {name: preset for name, preset in PRESETS.items() if preset.config["model_type"] != STACK}


@pytest.mark.parametrize("preset", LIBRARY_KNOWS.values(), ids=LIBRARY_KNOWS)
def test_a_preset_has_the_published_number_of_parameters(preset: Preset, tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    (tmp_path / "config.json").write_text(json.dumps(dict(preset.config)))
    with torch.device("meta"):
        net = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path))
    assert sum(parameter.numel() for parameter in net.parameters()) == pytest.approx(preset.parameters, rel=0.01)
    assert type(net).__name__ == preset.architecture
    assert context_length(tmp_path) == preset.context_length


# The embedded model, converted.


def test_the_embedded_model_is_whole_and_says_what_every_engine_reads() -> None:
    model = fetch_model()
    assert model.gguf is None, "the preset is served as floats; its GGUF file is what they were made of"
    source = cache_folder() / "gguf" / DEFAULT / GGUF_NAME
    assert hashlib.sha256(source.read_bytes()).hexdigest() == GGUF_SHA256
    config = json.loads((model.folder / "config.json").read_text())
    assert (config["rope_theta"], config["rope_scaling"], config["torch_dtype"]) == (100_000.0, None, "float32")
    assert config["rms_norm_eps"] == pytest.approx(1e-5)
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)
    assert (model.folder / "model.safetensors").stat().st_size == pytest.approx(4 * 134_515_008, rel=1e-3)
    assert "<|im_start|>" in (model.folder / "chat_template.jinja").read_text()
    assert context_length(model.folder) == 8192


def test_its_tokenizer_takes_special_tokens_whole() -> None:

    tokenizer = tokenizer_of(fetch_model().folder)
    assert tokenizer.encode("<|im_start|>user\nHi<|im_end|>").ids == [1, 4093, 198, 26843, 2]


# A GGUF file of the user's own, with Llama 3's rotary factors.

ROPE = LLAMA_3_ROPE | {"rope_theta": 500_000.0}
TINY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "max_position_embeddings": 128}


@pytest.fixture(scope="module")
def conversion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, converted into a cache beside it: that takes ten seconds of CPU."""
    folder = tmp_path_factory.mktemp("converted")
    path = folder / "tiny.gguf"
    model, _ = write_tiny(folder / "original", "llama", rope_parameters=ROPE, **TINY)
    shutil.copy(gguf_of(model, "float32"), path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINEBENCH_CACHE", str(folder / "cache"))
        fetch_model(str(path))
    return path


@pytest.fixture
def converted(conversion: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That file, while its cache is the cache: other tests would convert the embedded model into it again."""
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(conversion.parent / "cache"))
    return conversion


def test_a_gguf_file_is_converted_once_and_anew_when_it_changes(converted: Path) -> None:
    import gguf
    from safetensors.numpy import load_file

    path = converted
    model = fetch_model(str(path))
    assert model == Model("tiny", conversion_folder(path), path)
    assert context_length(model.folder) == 128
    # The weights are the file's own, bit for bit.
    written = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
    read = load_file(model.folder / "model.safetensors")
    assert (read["model.layers.0.mlp.up_proj.weight"] == written["blk.0.ffn_up.weight"]).all()
    inode = model.folder.stat().st_ino
    assert fetch_model(str(path)).folder.stat().st_ino == inode
    kept = path.stat()
    os.utime(path, ns=(0, 0))
    assert conversion_folder(path) != model.folder
    os.utime(path, ns=(kept.st_atime_ns, kept.st_mtime_ns))


def llama_3_factors(factor: float, base: float, width: int) -> list[float]:
    """As the published converters write them, by wavelengths."""
    factors = []
    for pair in range(width // 2):
        wavelength = 2 * math.pi * base ** (2 * pair / width)
        smooth = (8192 / wavelength - 1) / (4 - 1)
        between = 1 / ((1 - smooth) / factor + smooth)
        factors.append(1 if wavelength < 8192 / 4 else factor if wavelength > 8192 / 1 else between)
    return factors


def write_rotary(path: Path, base: float = 12_345.0, factors: Sequence[float] = (), scaling: str = "") -> None:
    """Only what a GGUF file says of its rotary embeddings. `factors` divide the frequencies; `scaling` is the name of
    another scaling, with the factor 3."""
    import gguf
    import numpy

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_rope_freq_base(base)
    if scaling:
        writer.add_string("llama.rope.scaling.type", scaling)
        writer.add_float32("llama.rope.scaling.factor", 3.0)
    if factors:
        writer.add_tensor("rope_freqs.weight", numpy.array(factors, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama_3s_rotary_factors_are_recognised(factor: float, tmp_path: Path) -> None:
    write_rotary(tmp_path / "tiny.gguf", 500_000.0, llama_3_factors(factor, 500_000.0, 8))
    found = rotary_scaling(tmp_path / "tiny.gguf")
    assert found is not None
    assert (found["rope_type"], found["factor"]) == ("llama3", factor)


def test_llama_3s_rotary_factors_survive_the_conversion(converted: Path) -> None:
    import numpy
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    factor = 32.0
    factors = llama_3_factors(factor, 500_000.0, 8)
    assert factors[:2] == [1, 1]
    assert 1 < factors[2] < factors[3] == factor
    folder = fetch_model(str(converted)).folder
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](AutoConfig.from_pretrained(folder), "cpu")
    plain = 500_000.0 ** (-numpy.arange(0, 8, 2) / 8)
    assert plain / frequencies.numpy() == pytest.approx(factors, rel=1e-5)
    written = json.loads((folder / "config.json").read_text())  # as older engines read it
    assert (written["rope_theta"], written["rope_scaling"]["rope_type"]) == (500_000.0, "llama3")
    assert written["rope_scaling"]["factor"] == factor


def test_a_rotary_scaling_by_one_factor_survives_too(tmp_path: Path) -> None:
    write_rotary(tmp_path / "tiny.gguf", scaling="linear")
    assert rotary_scaling(tmp_path / "tiny.gguf") == {"rope_type": "linear", "factor": 3.0}
    write_rotary(tmp_path / "plain.gguf")
    assert rotary_scaling(tmp_path / "plain.gguf") is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        pytest.param({"factors": [1.0, 2.0, 3.0, 4.0]}, "its rotary factors are not those of Llama 3", id="others"),
        pytest.param({"scaling": "yarn"}, "its rotary scaling is yarn, which is not converted", id="YaRN"),
    ],
)
def test_a_rotary_scaling_that_would_be_lost_is_refused(
    given: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path / "cache"))
    write_rotary(tmp_path / "tiny.gguf", **given)
    with pytest.raises(EngineUnavailable, match=f"tiny.gguf could not be converted: {sentence}; name the model's orig"):
        fetch_model(str(tmp_path / "tiny.gguf"))


def test_a_file_that_is_no_model_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(b"not a model at all")
    with pytest.raises(ValueError, match=r"no\.gguf is not a GGUF file\."):
        fetch_model(str(tmp_path / "no.gguf"))


# Shapes without weights.


# The smallest vocabulary, a usual and the largest one: a tokenizer is made for their size.
@pytest.mark.parametrize("name", ["unoptimized-512", "gpt2", "qwen2.5-0.5b"])
def test_a_random_model_has_a_tokenizer_that_fits_it(name: str, tmp_path: Path) -> None:

    model = fetch_model(f"random:{name}")
    config = json.loads((model.folder / "config.json").read_text())
    tokenizer = tokenizer_of(model.folder)
    assert model.random_weights
    assert tokenizer.get_vocab_size() == config["vocab_size"] == PRESETS[name].config["vocab_size"]
    text = "<|im_start|>The quick brown fox — 日本語 🚀 — jumped over 1234 lazy dogs.\n"
    ids = tokenizer.encode(text).ids
    assert max(ids) < config["vocab_size"]
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert len(ids) < len(text) / 1.4, "text is cut into words, not letters"
    assert tokenizer.decode([config["vocab_size"] - 1]) != "", "every id the model may produce is text"
    assert not list(model.folder.glob("*.safetensors"))


def test_random_models_download_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path))
    monkeypatch.setattr("engines.models.fetch.fetch_embedded", lambda *_: pytest.fail("a download"))
    model = fetch_model("random:smollm2-135m")
    assert {path.name for path in model.folder.iterdir()} >= {"config.json", "tokenizer.json", "chat_template.jinja"}


def test_an_answer_of_any_ids_is_read_as_the_same_number_of_tokens_again() -> None:
    """As in the next turn of a conversation. An English sentence has a token for each word, about."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(json.dumps(make_tokenizer(32_000)))
    ids = random.Random(0).sample(range(259, 32_000), 1000)
    assert [id for id in ids if tokenizer.encode(tokenizer.decode([id])).ids != [id]] == []
    assert len(tokenizer.encode(tokenizer.decode(ids)).ids) == pytest.approx(1000, rel=0.05)
    sentence = "The server admits a request when a slot is free, and otherwise it waits in a queue."
    assert len(tokenizer.encode(sentence).ids) <= 1.6 * len(sentence.split())


def test_weights_in_a_file_are_spread_as_a_model_is_initialised(tmp_path: Path) -> None:
    import numpy as np

    _write_weights({"a.weight": (300, 70), "b.weight": (300, 70), "norm.weight": (1, 64)}, 0.02, tmp_path / "m")
    data = (tmp_path / "m").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    numbers = (np.frombuffer(data[8 + length :], np.uint16).astype(np.uint32) << 16).view(np.float32)
    one, other, norm = np.split(numbers, [21_000, 42_000])
    assert float(one.std()) == pytest.approx(0.02, rel=0.02)
    assert abs(float(np.corrcoef(one, other)[0, 1])) < 0.03, "no two tensors are alike"
    assert (norm == 1).all()


# Names and folders that mean nothing.


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        pytest.param("wibble", r"no model called `wibble`; choose from smollm2-135m, llama", id="no such name"),
        pytest.param("llama-3.2-tiny", r"has no trained weights; name random:llama-3\.2-tiny\.", id="only a shape"),
        pytest.param("random:wibble", r"no preset called `wibble` for random weights; choose", id="no such preset"),
        pytest.param("./missing", r"there is no model at \./missing; a model is a folder", id="no such folder"),
        pytest.param("a/b--c", r"a/b--c is not the name of a model \(", id="no name that the hub takes"),
        pytest.param("missing.gguf", r"there is no model at missing\.gguf; a model is", id="no such file"),
    ],
)
def test_a_name_that_means_nothing_gets_a_sentence(spec: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fetch_model(spec)


@pytest.mark.parametrize(
    ("files", "lacks"),
    [
        pytest.param([], "config.json", id="an empty folder"),
        pytest.param(["config.json"], "tokenizer.json", id="no tokenizer"),
        pytest.param(["config.json", "tokenizer.json"], r"\*\.safetensors", id="no weights"),
    ],
)
def test_a_folder_that_is_no_model_is_refused(files: list[str], lacks: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(EngineUnavailable, match=rf"has no {lacks}; "):
        fetch_model(str(tmp_path))


def test_a_folder_of_ones_own_is_taken_as_it_is() -> None:
    folder = fetch_model().folder
    model = fetch_model(str(folder))
    assert (model.folder, model.name, model.gguf, model.trust_remote_code) == (
        folder.resolve(),
        "smollm2-135m",
        None,
        False,
    )


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        pytest.param({"model_type": "phi3", "sliding_window": 2047}, 2047, id="a window"),
        pytest.param({"model_type": "mistral", "sliding_window": None}, 4096, id="none"),
        pytest.param({"model_type": "qwen2", "sliding_window": 64}, 4096, id="one that is not used by default"),
        pytest.param({"model_type": "qwen2", "sliding_window": 64, "use_sliding_window": True}, 64, id="or is"),
    ],
)
def test_an_engine_without_windows_ends_at_the_models_window(
    config: dict[str, Any], tokens: int, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 4096} | config))
    assert context_length(tmp_path) == 4096
    assert context_length(tmp_path, has_windows=False) == tokens


def test_keys_and_values_of_latent_attention_and_of_windows() -> None:
    shape = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    latent = {"model_type": "deepseek_v2", "kv_lora_rank": 16, "qk_rope_head_dim": 4}
    assert kept_values(shape | latent, 1000) == 2 * (16 + 4) * 1000
    assert kept_values(shape | {"model_type": "mistral", "sliding_window": 100}, 1000) == 2 * 2 * 64 * 100
    assert kept_values(shape | {"model_type": "llama"}, 1000) == 2 * 2 * 64 * 1000


def test_a_context_that_published_files_leave_out() -> None:
    assert context_of({"model_type": "gemma3_text"}) == 131_072
    assert context_of({"model_type": "another"}) == 2048
