"""llama.cpp through its own `llama-server`, with parallel slots: the reference for speed on a CPU.

The program is the one in ENGINEBENCH_LLAMACPP or on PATH, or the server in the wheel of xllamacpp, in a separate
environment (server.py). Prompts go in as token ids, each step's text comes out; batching, sampling, stop strings and
text are llama.cpp's. Prompts are not cached (`cache_prompt`), so that repeated ones cost as much as with other engines.

    enginebench engines install llamacpp
    enginebench serve llamacpp -o dtype=q8_0
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from enginebench.settings.schema import setting
from enginebench.settings.system import free_port
from engines.contract.base import Chunk, EngineInfo, FinishReason, GenerateRequest, Launch, Model
from engines.contract.errors import EngineUnavailable, FatalError
from engines.machine.devices import usable_cores
from engines.models.fetch import context_length
from engines.models.size import MemoryNeed, ModelSize
from engines.models.to_gguf import file_for, format_of
from engines.process.environments import Environment, InstalledEngine, Packages
from engines.remote import posted

PROGRAM, VARIABLE = "llama-server", "ENGINEBENCH_LLAMACPP"
INSTALL = "enginebench engines install llamacpp"
SERVER = Path(__file__).with_name("server.py")
MAX_DEFAULT_CONTEXT = 4096  # tokens of a slot: all slots' caches are allocated at the start
READY_CHECK = 0.05  # seconds
ALL_LAYERS = 999
RANDOM_SEED = 2**32 - 1  # with this seed, llama.cpp chooses one
GPU = re.compile(r"^ +(CUDA|ROCm|Metal|MTL|Vulkan|SYCL|MUSA)\d*:", re.MULTILINE)  # as ggml names its devices
FINISH: dict[str, FinishReason] = {"eos": "stop", "word": "stop", "limit": "length"}


@dataclass(frozen=True, slots=True)
class LlamaCppOptions:
    concurrency: int = setting(16, "slots: requests that run in one batch", least=1, tune="4,8,16,32")
    dtype: Literal["auto", "float32", "bfloat16", "float16", "q8_0", "q4_0", "gguf"] = setting(
        "auto", "number format of the weights. auto: a GGUF file as it is, else float16; q…: written once as GGUF"
    )
    context: int | None = setting(
        None, "maximum tokens of prompt plus answer, per slot (none: the model's limit, at most 4096)", least=1
    )
    threads: int | None = setting(None, "CPU threads (none: one per core)", least=1, tune="none,cores/2")
    device: Literal["auto", "cpu", "gpu"] = setting(
        "auto", "gpu: all layers on the GPU; auto: the same, if the program was built for one and lists it"
    )


class LlamaCppEngine(InstalledEngine):
    Options = LlamaCppOptions
    options: LlamaCppOptions
    name, language = "llamacpp", "c++"
    features = ("seed", "stop", "ignore_eos")
    loads_on = "main"
    cuda_by = None
    environment = Environment(name, "xllamacpp", cpu=Packages(("xllamacpp==2026.10.11549",)))

    @classmethod
    def why_not_here(cls) -> str | None:
        if _program() is not None:
            return None
        return f"`{PROGRAM}` was not found: put it on PATH, name it in {VARIABLE}, or run: {INSTALL}"

    @classmethod
    def version_here(cls) -> str | None:
        program = _program()
        return None if program is None else _version(program)

    @classmethod
    def launch(cls, options: LlamaCppOptions, model: Model | None) -> Launch:
        return Launch()  # this process is a client; the program is its child

    @classmethod
    def device_of(cls, options: LlamaCppOptions) -> str:
        """Return the program's GPU, if it was built for one and finds it."""
        program = _program()
        return "cpu" if program is None or options.device == "cpu" else _gpu_of(tuple(program)) or "cpu"

    @classmethod
    def memory_need(cls, options: LlamaCppOptions, size: ModelSize) -> MemoryNeed:
        """Count the cache of all slots, which is allocated in 16 bits while it loads."""
        dtype = format_of(options.dtype, size.gguf is not None)
        slots = options.concurrency * _slot_tokens(options, size.context_length)
        cache = size.need("float16", slots).cache
        return size.need(dtype, cache=cache, cache_options=("concurrency", "context"), device=cls.device_of(options))

    async def load(self) -> EngineInfo:  # type: ignore[override]  # on the main thread it may be asynchronous
        import httpx

        program, file, dtype = await asyncio.to_thread(self._prepared)
        port = free_port()
        command = self.command(program, file, port)
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)  # noqa: ASYNC220
        # The server closes a kept connection just after about every fourth streamed answer (xllamacpp 2026.10.11549).
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=None, trust_env=False, limits=limits
        )
        await self._until_loaded()
        return self.describe(
            _version(program),
            dtype,
            self._device,
            self._context_length,
            self.options.concurrency,
            threads=self._threads,
            ignore_eos="suppresses the end-of-text token",
        )

    def _prepared(self) -> tuple[Sequence[str], Path, str]:
        """Return the program, the GGUF file and its number format; device and context are then known."""
        assert self.model is not None
        if (program := _program()) is None:
            raise EngineUnavailable(str(self.why_not_here()))
        self._device = self.device_of(self.options)
        if self.options.device == "gpu" and self._device == "cpu":
            raise EngineUnavailable(f"{program[0]} lists no GPU (--list-devices): use one that was built for it.")
        self._context_length = _slot_tokens(self.options, context_length(self.model.folder, has_windows=False))
        return (program, *file_for(self.model, self.options.dtype))

    def own_server(self, host: str, port: int) -> Launch:
        program, file, _ = self._prepared()
        assert self.model is not None
        command = self.command(program, file, port, host)
        # The name is the one behind our server; repeated prompts cost as much as with other engines.
        return Launch((*command, "--alias", self.model.name, "--no-cache-prompt", "--metrics"))

    @property
    def _threads(self) -> int:
        return self.options.threads or len(usable_cores())

    def command(self, program: Sequence[str], file: Path, port: int, host: str = "127.0.0.1") -> list[str]:
        slots, threads = self.options.concurrency, str(self._threads)
        # By default llama.cpp spreads a model over all GPUs; other engines take one.
        placed = ("0",) if self._device == "cpu" else (str(ALL_LAYERS), "--split-mode", "none")
        return [
            *(*program, "--model", str(file), "--host", host, "--port", str(port)),
            *("--parallel", str(slots), "--ctx-size", str(slots * self._context_length)),
            *("--threads", threads, "--threads-batch", threads),
            *("--n-gpu-layers", *placed),
            *("--cache-ram", "0", "--no-webui", "--log-verbosity", "0"),
        ]

    async def _until_loaded(self) -> None:
        """Wait for the server. Raises `EngineUnavailable` if the program ends first."""
        import httpx

        while True:
            with contextlib.suppress(httpx.TransportError):
                if (await self._client.get("/health")).status_code == 200:
                    return
            if self._process.poll() is not None:
                raise EngineUnavailable(
                    f"{PROGRAM} ended with code {self._process.returncode} while loading; its log says why."
                )
            await asyncio.sleep(READY_CHECK)

    def body(self, request: GenerateRequest) -> dict[str, Any]:
        """Return the body for `/completion`: only temperature and nucleus, in the order of the other engines.

        With `ignore_eos` llama.cpp never generates an end-of-text token, which other engines generate and pass over.
        """
        greedy = {"temperature": 0.0, "samplers": ["temperature"]}
        drawn = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "samplers": ["temperature", "top_p"],
            "seed": -1 if request.seed is None else request.seed % RANDOM_SEED,
        }
        return {
            "prompt": list(request.prompt_token_ids),
            "n_predict": request.token_limit(self._context_length),
            "stop": list(request.stop),
            "ignore_eos": request.ignore_eos,
            "cache_prompt": False,
            "stream": True,
            **(greedy if request.greedy else drawn),
        }

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        import httpx

        counted, last = 0, None
        try:
            # llama.cpp's own path, because its events count tokens; the events of OpenAI's paths do not.
            async with contextlib.aclosing(posted(self._client, "/completion", self.body(request))) as answer:
                async for event in answer:
                    finish = FINISH.get(event.get("stop_type", ""), "stop") if event.get("stop") else None
                    produced = int(event.get("tokens_predicted", counted + 1))
                    chunk = Chunk(event.get("content", ""), max(0, produced - counted), finish)
                    counted = produced
                    if finish is None:
                        yield chunk
                    else:
                        last = chunk  # kept until the body has ended, because only then is its connection used again
        except httpx.TransportError as error:
            if last is None:
                raise FatalError(f"{PROGRAM} does not answer any more; its log says why.") from error
        if last is None:
            raise FatalError(f"{PROGRAM} ended in the middle of an answer; its log says why.")
        yield last

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _slot_tokens(options: LlamaCppOptions, context_length: int) -> int:
    return min(options.context or MAX_DEFAULT_CONTEXT, context_length)


@cache
def _gpu_of(program: tuple[str, ...]) -> str | None:
    """Return the kind of the first GPU that the program itself lists: a build for the CPU lists none."""
    try:
        done = subprocess.run([*program, "--list-devices"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = GPU.search(done.stdout + done.stderr)
    return None if match is None else "metal" if match[1] == "MTL" else match[1].lower()


def _program() -> Sequence[str] | None:
    """Return the program's command: named by the variable, on PATH, or installed by `enginebench engines install`."""
    if named := os.environ.get(VARIABLE):
        program = shutil.which(os.path.expanduser(named))
        return [program] if program else None
    if program := shutil.which(PROGRAM):
        return [program]
    environment = LlamaCppEngine.environment
    return None if environment.installed() is None else [str(environment.python), "-I", str(SERVER)]


def _version(program: Sequence[str]) -> str:
    """Read `version: 11434 (abcdef0)` from the program's standard error. Raises `EngineUnavailable`."""
    try:
        done = subprocess.run([*program, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineUnavailable(f"{' '.join(program)} cannot be run ({error}).") from error
    match = re.search(r"version: *(\S+)", done.stderr + done.stdout)
    return match[1] if match else "unknown"
