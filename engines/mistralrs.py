"""mistral.rs through its Python wheel: a Rust engine with continuous batching, on the CPU and without any network.

It takes text, not token ids, and streams only through its chat interface. So it gets a chat template that passes one
message through unchanged, and each request is checked first: its tokenizer must turn the text into the ids that every
other engine receives. It loads safetensors, and quantises them itself if requested.

    enginebench serve mistralrs -o concurrency=32
"""

from __future__ import annotations

import json
import mmap
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from enginebench.settings.schema import setting
from engines.contract.base import BlockingEngine, Chunk, EngineInfo, FinishReason, GenerateRequest
from engines.contract.errors import BadRequest, EngineError, EngineUnavailable, first_line
from engines.machine.devices import automatic_dtype
from engines.machine.extras import install_command
from engines.models.fetch import context_length
from engines.models.random_model import with_weights
from engines.models.size import MemoryNeed, ModelSize
from engines.text.answer_text import StopStrings
from engines.text.detokenize import tokenizer_of

# One user message without additions: the server has already rendered the model's own template.
AS_IT_IS = "{%- for message in messages -%}{{ message['content'] }}{%- endfor -%}"

# The class names in `config.json`, and mistral.rs's names for them.
ARCHITECTURES = {
    "LlamaForCausalLM": "Llama",
    "MistralForCausalLM": "Mistral",
    "MixtralForCausalLM": "Mixtral",
    "Phi3ForCausalLM": "Phi3",
    "Qwen2ForCausalLM": "Qwen2",
    "Qwen3ForCausalLM": "Qwen3",
    "GemmaForCausalLM": "Gemma",
    "Gemma2ForCausalLM": "Gemma2",
    "SmolLM3ForCausalLM": "SmolLm3",
}
INVALID = "\ufffd"  # instead of bytes that are not a character
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
QUANTISED = {"q8_0": "Q8_0", "q4_0": "Q4_0"}  # by mistral.rs, while it loads ("in-situ quantization")
# Candle compiles these instead of a device that a build lacks; the extension contains the names of its sources.
DUMMIES = {"cuda": b"dummy_cuda_backend.rs", "metal": b"dummy_metal_backend.rs"}


@dataclass(frozen=True, slots=True)
class MistralRsOptions:
    concurrency: int = setting(
        32, "requests that run in one batch; a quantised model runs one at a time", least=1, tune="4,8,16,32,64"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16", "q8_0", "q4_0"] = setting(
        "auto",
        "number format of the weights. auto: float32 on a CPU, where it is fastest, bfloat16 on a GPU (float16 below "
        "compute capability 8.0); "
        "q…: quantised while loading",
    )


class MistralRsEngine(BlockingEngine):
    Options = MistralRsOptions
    options: MistralRsOptions
    name, language = "mistralrs", "rust"
    features = ("stop", "ignore_eos")
    cuda_by = "wheel"

    @classmethod
    def why_not_here(cls) -> str | None:
        if find_spec("mistralrs") is None:
            return f"it needs the package mistralrs; install with: {install_command('mistralrs')}"
        return None

    @classmethod
    def version_here(cls) -> str | None:
        return version(_distribution()) if cls.why_not_here() is None else None

    @classmethod
    def device_of(cls, options: MistralRsOptions) -> str:
        """Return the one device that this build has."""
        spec = find_spec("mistralrs")
        folders = [] if spec is None else list(spec.submodule_search_locations or ())
        extensions = [path for folder in folders for path in Path(folder).glob("mistralrs*.so")]
        return built_for(extensions[0]) if extensions else "cpu"

    @classmethod
    def memory_need(cls, options: MistralRsOptions, size: ModelSize) -> MemoryNeed:
        device = cls.device_of(options)
        dtype = automatic_dtype(device) if options.dtype == "auto" else options.dtype
        return size.need(dtype, device=device)

    def load(self) -> EngineInfo:
        assert self.model is not None
        folder = with_weights(self.model).folder
        build = _distribution()
        device = self.device_of(self.options)
        floats = automatic_dtype(device)
        dtype = floats if self.options.dtype == "auto" else self.options.dtype
        self._on_cpu = device == "cpu"
        self._tokenizer = tokenizer_of(folder)
        self._bos = _bos_token(folder)
        # Version 0.9.5 fails when two quantised prompts of one length are prefilled together.
        at_a_time = 1 if dtype in QUANTISED else self.options.concurrency
        self._runner = self._start(folder, DTYPES.get(dtype, DTYPES[floats]), QUANTISED.get(dtype), at_a_time)
        self._context_length = self._runner.max_sequence_length() or context_length(folder)
        self._starting = threading.Lock()  # two calls at the same time fail: "Already borrowed"
        self.max_threads = at_a_time
        together = None if dtype in QUANTISED else at_a_time
        return self.describe(version(build), dtype, device, self._context_length, together, [build])

    def _start(self, folder: Path, floats: str, quantised: str | None, at_a_time: int) -> Any:
        import mistralrs

        self.end_phase("imports")
        which: Any = mistralrs.Which.Plain(
            model_id=str(folder),
            arch=getattr(mistralrs.Architecture, _architecture(folder)),
            dtype=getattr(mistralrs.ModelDType, floats),
        )
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
            template.write(AS_IT_IS)
            template.flush()
            try:
                return mistralrs.Runner(
                    which,
                    max_seqs=at_a_time,
                    in_situ_quant=quantised,
                    prefix_cache_n=0,  # repeated prompts must cost as much as with other engines
                    token_source="none",
                    jinja_explicit=template.name,
                )
            except BaseException as error:  # may be of several types; a panic is not an `Exception`
                raise EngineUnavailable(f"mistral.rs could not load {folder.name}: {first_line(error)}") from error

    def generate_blocking(self, request: GenerateRequest) -> Iterator[Chunk]:
        from mistralrs import ChatCompletionRequest

        chat = ChatCompletionRequest(
            messages=self._same_text(request),
            model="default",
            max_tokens=request.token_limit(self._context_length),
            temperature=0.0 if request.greedy else request.temperature,
            top_p=request.top_p if request.top_p < 1 else None,
            ignore_eos=request.ignore_eos,
            stream=True,
            # For the text of the first token. On a CPU they are computed anyway; on a GPU they would bring all logits
            # to the host.
            logprobs=self._on_cpu,
            top_logprobs=0,
        )
        try:
            with self._starting:
                answer = self._runner.send_chat_completion_request(chat)
            # Leaving this loop drops `answer`, and that makes mistral.rs stop.
            yield from self._chunks(answer, StopStrings(request.stop))
        except ValueError as error:  # the only kind that mistral.rs raises
            raise EngineError(f"mistral.rs failed: {first_line(error)}") from error

    def _chunks(self, answer: Iterator[Any], stops: StopStrings) -> Iterator[Chunk]:
        counted, begun = 0, False
        for piece in answer:
            choice = piece.choices[0]
            text = (choice.delta.reasoning_content or "") + (choice.delta.content or "")
            if not begun:
                text = text if text[:1].isspace() else _cut_off(choice) + text
                begun = text != ""
            ending: FinishReason | None = None
            if choice.finish_reason is not None:
                ending = "length" if choice.finish_reason == "length" else "stop"
            ready, finish = stops.step(text, ending)
            # With log-probabilities each token is a piece, even if it has no text yet.
            tokens = self._tokens_of(text) if choice.logprobs is None else 1
            if piece.usage is not None:  # the last piece has the exact total
                tokens = max(piece.usage.completion_tokens - counted, 0)
            counted += tokens
            yield Chunk(ready, tokens, finish)
            if finish is not None:
                return

    def _tokens_of(self, text: str) -> int:
        """Return the tokens of a piece: one, unless a character was held back until its last byte arrived."""
        if text.isascii() or INVALID in text:  # bytes that are no character come alone, and would be encoded as three
            return 1
        return max(1, len(self._tokenizer.encode(text, add_special_tokens=False).ids))

    def _same_text(self, request: GenerateRequest) -> str:
        """Find the text that mistral.rs reads as exactly this request's ids. Raises `BadRequest`."""
        ids = list(request.prompt_token_ids)
        # mistral.rs prepends the beginning-of-text token if the tokenizer says so; the template may have done so too.
        for text in (request.prompt, request.prompt.removeprefix(self._bos)):
            if self._tokenizer.encode(text).ids == ids:
                return text
        raise BadRequest(
            "mistralrs takes only text, and the text of these token ids has other ids; send text instead of token ids."
        )


def _cut_off(first: Any) -> str:
    """Return the white space with which an answer begins: mistral.rs cuts it off the first piece, but not off its
    token."""
    token = b"" if first.logprobs is None else bytes(first.logprobs.bytes or ())
    return token[: len(token) - len(token.lstrip())].decode()


def _distribution() -> str:
    """Return the name of the installed wheel: older wheels for CUDA have a different name."""
    return packages_distributions()["mistralrs"][0]


@cache
def built_for(extension: Path) -> str:
    """Return the device of a build, whose name does not tell: wheels for CUDA are called `mistralrs` too."""
    with extension.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as code:
        return next((device for device, dummy in DUMMIES.items() if code.find(dummy) < 0), "cpu")


def _architecture(folder: Path) -> str:
    names = json.loads((folder / "config.json").read_text()).get("architectures") or ["unknown"]
    if names[0] not in ARCHITECTURES:
        raise EngineUnavailable(
            f"mistralrs cannot run a {names[0]}; it runs {', '.join(ARCHITECTURES)}. The transformers engine runs more."
        )
    return ARCHITECTURES[names[0]]


def _bos_token(folder: Path) -> str:
    try:
        token = json.loads((folder / "tokenizer_config.json").read_text()).get("bos_token")
    except (OSError, ValueError):
        return ""
    if isinstance(token, dict):
        token = token.get("content")
    return token or ""
