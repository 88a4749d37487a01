"""lm.rs, a small Rust engine for one user, driven through its own `backend` program as its users install it.

`backend` speaks a websocket: a message in, one `OUTPUT` per token back, `<eos>` at the end. It keeps a conversation per
connection, stops for nothing but the end of text, and takes the temperature on its command line. So each request gets
a process of its own, which is killed when the answer is over; the next one is started ahead and has loaded its model by
then. lm.rs takes text and puts it into its own chat template: see `engines.lmrs.text`, and the option `same_tokens`.

    enginebench serve --engine lmrs --model llama-3.2-1b -o dtype=q8_0
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from engines.contract.base import (
    BadRequest,
    Chunk,
    Engine,
    EngineCrashed,
    EngineError,
    EngineInfo,
    EngineStats,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
)
from engines.lmrs.file import LONGEST_CONTEXT, Header
from engines.lmrs.text import LmrsTokenizer, user_message
from engines.text.text import StopStrings

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

PROGRAM, VARIABLE = "backend", "ENGINEBENCH_LMRS"
ITS_NAME = "lmrs-api"  # what it answers to --version
START_PATIENCE = 20.0  # seconds for the program to listen
END = "<eos>"
MISSING = (
    f"lm.rs's program `{PROGRAM}` is not here: build it as github.com/samuel-vitorino/lm.rs says, then name it "
    f"in {VARIABLE} or with -o program=…, or put it on PATH."
)


@dataclass(frozen=True, slots=True)
class LmrsOptions:
    program: str | None = field(default=None, metadata={"help": f"lm.rs's `{PROGRAM}` (none: {VARIABLE}, then PATH)"})
    dtype: Literal["f32", "q8_0", "q4_0"] = field(
        default="q8_0", metadata={"help": "weights: the model is converted once"}
    )
    file: str | None = field(default=None, metadata={"help": "an .lmrs file, with its tokenizer.bin beside it"})
    threads: int | None = field(default=None, metadata={"help": "CPU threads (none: one per core)"})
    same_tokens: bool = field(
        default=False, metadata={"help": "refuse a prompt that lm.rs would read as other tokens than the server's"}
    )

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise ValueError("option `threads` is 1 or more.")


class LmrsEngine(Engine):
    Options = LmrsOptions
    options: LmrsOptions

    @classmethod
    def why_not_here(cls) -> str | None:
        if find_spec("websockets") is None:
            return "it needs the package websockets; install with: pip install 'enginebench[lmrs]'"
        return None if _program(None) else MISSING

    @classmethod
    def why_not_with(cls, options: LmrsOptions) -> str | None:
        return None if options.program and find_spec("websockets") else cls.why_not_here()

    @classmethod
    def version_here(cls) -> str | None:
        program = _program(None)
        try:
            return None if program is None else _version(program)
        except EngineUnavailable:
            return None

    def load(self) -> EngineInfo:
        program = _program(self.options.program)
        if program is None:
            raise EngineUnavailable(MISSING if self.options.program is None else f"there is no {self.options.program}.")
        its_version = _version(program)
        try:
            file, tokenizer = self._files()
            self._header, self._tokenizer = Header.read(file), LmrsTokenizer.read(tokenizer)
        except (ValueError, OSError) as error:
            raise EngineUnavailable(f"lm.rs cannot take this model: {error}") from error
        self._start = _Start(program, file, tokenizer, self.options.threads)
        self._spare: tuple[tuple[float, float], asyncio.Task[_Backend]] | None = None
        self._told = False
        asyncio.run(self._start.try_out())
        return EngineInfo(
            name="lmrs",
            version=its_version,
            language="rust",
            model=file.stem if self.model is None else self.model.name,
            dtype={"f32": "float32"}.get(self._header.dtype, self._header.dtype),
            device="cpu",
            batching="none",
            max_concurrency=1,
            context_length=min(self._header.context, LONGEST_CONTEXT),
            features=("stop",),
            options=asdict(self.options)
            | {
                "program": program.name,
                "file": file.name,
                "prompt": "text, which lm.rs cuts into tokens itself, in a chat template of its own",
                "group_size": self._header.group_size,
            },
            libraries={"websockets": version("websockets")},
        )

    def _files(self) -> tuple[Path, Path]:
        if self.options.file is not None:
            file = Path(self.options.file).expanduser()
            return file, file.with_name("tokenizer.bin")
        from engines.lmrs.convert import converted

        assert self.model is not None
        folder = converted(self.model, self.options.dtype)
        return folder / "model.lmrs", folder / "tokenizer.bin"

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        message, most = self._checked(request)
        sampling = (request.temperature, request.top_p)
        backend = await self._take(sampling)
        try:
            stops = StopStrings(request.stop)
            produced = 0
            async for text in backend.answer(message):
                finish: FinishReason | None = None
                ready = "" if text is None else stops.add(text)
                produced += 1  # the end of text is a token as well
                if stops.met or text is None:
                    finish = "stop"
                elif produced >= most:
                    finish = "length"
                if finish is not None:
                    ready += stops.rest()
                    backend.kill()  # before the last word: it must not compute into the next request's time
                yield Chunk(ready, 1, finish)
                if finish is not None:
                    return
        finally:
            await backend.close()
            self._prepare(sampling)

    def _checked(self, request: GenerateRequest) -> tuple[str, int]:
        """The message to send and how many tokens to let come. Raises `BadRequest`."""
        if request.seed is not None:
            raise BadRequest("lm.rs has no seed: it draws the same number for every token; leave `seed` out.")
        if request.logprobs is not None or request.ignore_eos or request.min_tokens:
            raise BadRequest("lm.rs can do neither logprobs nor ignore_eos nor min_tokens; leave them out.")
        message = user_message(request.prompt, self._header.family)
        if not message:
            raise BadRequest("lm.rs takes one user message: no system message, no earlier turns, no empty prompt.")
        read = self._tokenizer.prompt_ids(message, self._header.family, datetime.date.today())
        if read != request.prompt_token_ids:
            count = "an unknown number of" if read is None else len(read)
            told = f"lm.rs reads this prompt as {count} tokens, not as the server's {len(request.prompt_token_ids)}"
            if self.options.same_tokens:
                raise BadRequest(f"{told}, and same_tokens is set.")
            if not self._told:
                print(f"{told} (said once)", file=sys.stderr, flush=True)
                self._told = True
        room = min(self._header.context, LONGEST_CONTEXT) - max(len(read or ()), len(request.prompt_token_ids))
        if room < 1:
            raise BadRequest("the prompt fills lm.rs's whole context, its chat template included; shorten it.")
        return message, min(request.max_tokens, room)

    async def _take(self, sampling: tuple[float, float]) -> _Backend:
        spare, self._spare = self._spare, None
        if spare is not None and spare[0] == sampling:
            return await spare[1]
        if spare is not None:
            await _dispose(spare[1])
        return await self._start.ready(*sampling)

    def _prepare(self, sampling: tuple[float, float]) -> None:
        self._spare = sampling, asyncio.get_running_loop().create_task(self._start.ready(*sampling))

    def stats(self) -> EngineStats:
        import psutil

        total = psutil.Process().memory_info().rss
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                total += child.memory_info().rss
        return EngineStats(memory_bytes=total)

    def close(self) -> None:
        self._start.kill_all()


async def _dispose(task: asyncio.Task[_Backend]) -> None:
    with contextlib.suppress(EngineError):
        await (await task).close()


@dataclass(frozen=True, slots=True)
class _Start:
    """How to start `backend`, and those that live."""

    program: Path
    file: Path
    tokenizer: Path
    threads: int | None
    living: set[subprocess.Popen[bytes]] = field(default_factory=set)

    async def try_out(self) -> None:
        """Have it load the model once, so that a file it cannot take is told at once. Raises `EngineUnavailable`."""
        try:
            await (await self.ready(0.0, 1.0)).close()
        except EngineError as error:
            raise EngineUnavailable(str(error)) from error

    async def ready(self, temperature: float, top_p: float) -> _Backend:
        """A process that listens and has loaded its model. Raises `EngineCrashed`."""
        from websockets.exceptions import WebSocketException

        port = _free_port()
        backend = _Backend(self._launch(port, temperature, top_p), self.living)
        try:
            await backend.connect(port)
        except (WebSocketException, OSError, TimeoutError) as error:
            await backend.close()
            raise EngineCrashed("lm.rs ended while it loaded the model; its last words are in the log.") from error
        except BaseException:
            await backend.close()
            raise
        return backend

    def _launch(self, port: int, temperature: float, top_p: float) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [
                *(str(self.program), "--ip", "127.0.0.1", "--port", str(port)),
                *("--model", str(self.file), "--tokenizer", str(self.tokenizer)),
                *("--temperature", str(temperature), "--top-p", str(top_p)),
            ],
            env=os.environ | ({"RAYON_NUM_THREADS": str(self.threads)} if self.threads else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # it prints every prompt
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
        self.living.add(process)
        return process

    def kill_all(self) -> None:
        for process in self.living:
            process.kill()


class _Backend:
    """One process of lm.rs, connected, for one answer."""

    def __init__(self, process: subprocess.Popen[bytes], living: set[subprocess.Popen[bytes]]) -> None:
        self._process = process
        self._living = living
        self._socket: ClientConnection | None = None

    async def connect(self, port: int) -> None:
        """Wait until it listens, and then until its model is loaded: it answers a ping no sooner."""
        from websockets.asyncio.client import connect

        async with asyncio.timeout(START_PATIENCE):
            while True:
                try:
                    self._socket = await connect(
                        f"ws://127.0.0.1:{port}", compression=None, ping_interval=None, proxy=None
                    )
                    break
                except ConnectionRefusedError:
                    if self._process.poll() is not None:
                        raise
                    await asyncio.sleep(0.002)
        await (await self._socket.ping())

    async def answer(self, message: str) -> AsyncIterator[str | None]:
        """The text of each token, then `None`. Raises `EngineCrashed`."""
        from websockets.exceptions import ConnectionClosed

        assert self._socket is not None
        try:
            await self._socket.send(json.dumps({"text": message}, ensure_ascii=False))
            async for line in self._socket:
                said: dict[str, Any] = json.loads(line)
                if said["category"] != "OUTPUT":
                    continue
                if said["text"] == END:
                    yield None
                    return
                yield said["text"]
        except ConnectionClosed:
            pass
        raise EngineCrashed("lm.rs ended in the middle of its answer; its last words are in the log.")

    def kill(self) -> None:
        self._process.kill()

    async def close(self) -> None:
        """End it, and wait until it has ended."""
        self._process.kill()
        self._process.wait()  # a killed process is gone within a moment
        self._living.discard(self._process)
        if self._socket is not None:
            self._socket.transport.abort()


def _program(named: str | None) -> Path | None:
    wanted = named or os.environ.get(VARIABLE)
    found = shutil.which(os.path.expanduser(wanted)) if wanted else shutil.which(PROGRAM)
    return Path(found) if found else None


def _version(program: Path) -> str:
    """Also makes sure that this is lm.rs: `backend` is a common name. Raises `EngineUnavailable`."""
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineUnavailable(f"{program} cannot be run ({error}).") from error
    name, _, number = said.strip().partition(" ")
    if name != ITS_NAME:
        raise EngineUnavailable(
            f"{program} is not lm.rs's `{PROGRAM}`; name that one in {VARIABLE} or with -o program=…."
        )
    return number


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _die_with_parent() -> None:
    """Runs in the child: a worker that is killed must not leave its backend behind."""
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
