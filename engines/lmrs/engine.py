"""lm.rs, a small Rust engine for one user, driven through its own `backend` program as its users install it.

`backend` speaks a websocket: a message in, one `OUTPUT` per token back, `<eos>` at the end. It keeps a conversation per
connection, ends an answer only at the end of text, and takes the temperature on its command line. So each request gets
its own process, which is killed at the end of the answer; the next process is started ahead and loads its model in
the meantime. `engines.lmrs.alphabet` makes lm.rs read the same token ids as every other engine.

    enginebench serve lmrs --model random:llama-3.2-1b -o dtype=q8_0
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from enginebench.settings.schema import setting
from enginebench.settings.system import free_port
from engines.contract.base import Chunk, Engine, EngineInfo, FinishReason, GenerateRequest
from engines.contract.errors import BadRequest, EngineCrashed, EngineError, EngineUnavailable
from engines.lmrs.alphabet import NEVER, Alphabet
from engines.lmrs.model_file import DType, converted
from engines.machine.extras import install_command
from engines.models.fetch import context_length
from engines.models.size import MemoryNeed, ModelSize
from engines.text.answer_text import StopStrings
from engines.text.detokenize import Detokenizer, tokenizer_of

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

PROGRAM, VARIABLE = "backend", "ENGINEBENCH_LMRS"
PROGRAM_NAME = "lmrs-api"  # printed by --version
START_TIMEOUT = 20.0  # seconds for the program to listen
MAX_CONTEXT = 8192  # tokens; the limit of lm.rs for every model
END = "<eos>"
MISSING = (
    f"lm.rs's program `{PROGRAM}` was not found: build it as github.com/samuel-vitorino/lm.rs says, then put it on "
    f"PATH or name it in {VARIABLE}."
)
Sampling = tuple[float, float, bool]  # temperature, top_p, ignore_eos: fixed when a process starts


@dataclass(frozen=True, slots=True)
class LmrsOptions:
    dtype: DType = setting("q8_0", "number format of the weights; the model is converted once")
    threads: int | None = setting(None, "CPU threads (none: one per core)", least=1)
    same_tokens: bool = setting(True, "refuse a prompt that lm.rs cannot read as the same tokens as other engines")


class LmrsEngine(Engine):
    Options = LmrsOptions
    options: LmrsOptions
    name, language = "lmrs", "rust"
    features = ("stop", "ignore_eos")

    @classmethod
    def why_not_here(cls) -> str | None:
        if find_spec("websockets") is None:
            return f"it needs the package websockets; install with: {install_command('lmrs')}"
        return None if _program() else MISSING

    @classmethod
    def version_here(cls) -> str | None:
        program = _program()
        with contextlib.suppress(EngineUnavailable):
            return None if program is None else _version(program)
        return None

    @classmethod
    def memory_need(cls, options: LmrsOptions, size: ModelSize) -> MemoryNeed:
        return size.need(options.dtype)

    def load(self) -> EngineInfo:
        assert self.model is not None
        folder = self.model.folder
        if (program := _program()) is None:
            raise EngineUnavailable(MISSING)
        its_version = _version(program)
        try:
            self._file = converted(self.model, self.options.dtype)
            config = json.loads((folder / "config.json").read_text())
            self._tokenizer = tokenizer_of(folder)
        except (ValueError, OSError) as error:
            raise EngineUnavailable(f"lm.rs cannot use this model: {error}") from error
        self._program, self._size = program, int(config["vocab_size"])
        end = config["eos_token_id"]
        self._end = end[-1] if isinstance(end, list) else end  # lm.rs knows one; chats end with the last of several
        self._context_length = min(context_length(folder), MAX_CONTEXT)
        self._spare: tuple[tuple[Sampling, datetime.date | None], asyncio.Task[_Backend]] | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="enginebench-lmrs-")
        self._day: datetime.date | None = None
        self._warned = False
        try:
            asyncio.run(self._try_out())  # so that a file that it cannot load is reported now
        except EngineError as error:
            self.close()
            raise EngineUnavailable(str(error)) from error
        return self.describe(its_version, self.options.dtype, "cpu", self._context_length, libraries=["websockets"])

    def close(self) -> None:
        self._scratch.cleanup()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        most = request.token_limit(self._context_length)
        message = self._message(request)
        sampling = (0.0 if request.greedy else request.temperature, request.top_p, request.ignore_eos)
        backend = await self._take(sampling)
        try:
            text, stops = Detokenizer(self._tokenizer, request.prompt_token_ids), StopStrings(request.stop)
            produced = 0
            async for piece in backend.answer(message):
                produced += 1  # the end of text is a token as well
                ending: FinishReason | None = "stop" if piece is None else "length" if produced >= most else None
                decoded = "" if piece is None else text.add(self._alphabet.id(piece))
                ready, finish = stops.step(decoded + (text.rest() if ending is not None else ""), ending)
                if finish is not None:
                    backend.kill()  # before the last chunk is sent, so that it does not compute during the next request
                yield Chunk(ready, 1, finish)
                if finish is not None:
                    return
        finally:
            await backend.close()
            self._spare = (sampling, self._day), asyncio.get_running_loop().create_task(self._start(sampling))

    def _message(self, request: GenerateRequest) -> str:
        """Return the message that makes lm.rs read the request's prompt. Raises `BadRequest`."""
        if request.seed is not None and not request.greedy:
            raise BadRequest("lm.rs draws the same random number for every token; leave `seed` out, or be greedy.")
        if request.logprobs is not None or (request.min_tokens and not request.ignore_eos):
            raise BadRequest("lm.rs supports neither logprobs nor min_tokens; leave them out.")
        alphabet, ids = self._today(), request.prompt_token_ids
        inside = alphabet.inside_template(ids)
        if not (message := alphabet.message(ids if inside is None else inside)):
            raise BadRequest("lm.rs cannot read these tokens as they are; change the prompt's beginning or end.")
        if inside is None:
            problem = "lm.rs puts Llama 3.2's chat template, without a system message, around every prompt"
            if self.options.same_tokens:
                raise BadRequest(f"{problem}; send a chat with the user's turn first, or set same_tokens=no.")
            if not self._warned:
                print(f"{problem}: other engines read fewer tokens (reported once)", file=sys.stderr, flush=True)
                self._warned = True
            if len(ids) + alphabet.template_tokens >= self._context_length:
                raise BadRequest("prompt and chat template fill lm.rs's whole context; shorten the prompt.")
        return message

    def _today(self) -> Alphabet:
        """Return today's alphabet: lm.rs writes the date into the prompt, so its token texts belong to a day."""
        if (today := datetime.date.today()) != self._day:
            self._alphabet, self._day = Alphabet.for_day(self._tokenizer, self._size, today), today
            for ignore_eos, end in ((False, self._end), (True, NEVER)):
                self._alphabet.write(self._tokens_file(ignore_eos), end)
        return self._alphabet

    def _tokens_file(self, ignore_eos: bool) -> Path:
        return Path(self._scratch.name) / f"{self._day}-{'endless' if ignore_eos else 'tokenizer'}.bin"

    async def _take(self, sampling: Sampling) -> _Backend:
        spare, self._spare = self._spare, None
        if spare is not None and spare[0] == (sampling, self._day):
            return await spare[1]
        if spare is not None:
            with contextlib.suppress(EngineError):
                await (await spare[1]).close()
        return await self._start(sampling)

    async def _try_out(self) -> None:
        await (await self._start((0.0, 1.0, False))).close()

    async def _start(self, sampling: Sampling) -> _Backend:
        """Return a process that listens and has loaded its model. Raises `EngineCrashed`."""
        from websockets.exceptions import WebSocketException

        self._today()
        port = free_port()
        temperature, top_p, ignore_eos = sampling
        command: list[str | Path] = [self._program, "--ip", "127.0.0.1", "--port", str(port), "--model", self._file]
        command += ["--tokenizer", self._tokens_file(ignore_eos), "--temperature", str(temperature)]
        process = subprocess.Popen(  # noqa: ASYNC220  # takes a millisecond
            [*command, "--top-p", str(top_p)],
            env=os.environ | ({"RAYON_NUM_THREADS": str(self.options.threads)} if self.options.threads else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the program prints every prompt
        )
        backend = _Backend(process)
        try:
            await backend.connect(port)
        except (WebSocketException, OSError, TimeoutError) as error:
            await backend.close()
            raise EngineCrashed("lm.rs ended while loading the model; its last output is in the log.") from error
        except BaseException:
            await backend.close()
            raise
        return backend


class _Backend:
    """A process of lm.rs, connected, for one answer."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._socket: ClientConnection | None = None

    async def connect(self, port: int) -> None:
        """Wait until the process listens, and until it has loaded its model: only then does it answer a ping."""
        from websockets.asyncio.client import connect

        async with asyncio.timeout(START_TIMEOUT):
            while self._socket is None:
                try:
                    self._socket = await connect(
                        f"ws://127.0.0.1:{port}", compression=None, ping_interval=None, proxy=None
                    )
                except ConnectionRefusedError:
                    if self._process.poll() is not None:
                        raise
                    await asyncio.sleep(0.002)
        await (await self._socket.ping())

    async def answer(self, message: str) -> AsyncIterator[str | None]:
        """Yield the text of each token, then `None`. Raises `EngineCrashed`."""
        from websockets.exceptions import ConnectionClosed

        assert self._socket is not None
        with contextlib.suppress(ConnectionClosed):
            await self._socket.send(json.dumps({"text": message}, ensure_ascii=False))
            async for line in self._socket:
                received = json.loads(line)
                if received["category"] == "OUTPUT":
                    if received["text"] == END:
                        yield None
                        return
                    yield received["text"]
        raise EngineCrashed("lm.rs ended in the middle of its answer; its last output is in the log.")

    def kill(self) -> None:
        self._process.kill()

    async def close(self) -> None:
        """End the process, and wait until it has ended."""
        self._process.kill()
        self._process.wait()  # takes a moment
        if self._socket is not None:
            self._socket.transport.abort()


def _program() -> Path | None:
    path = shutil.which(os.path.expanduser(os.environ.get(VARIABLE) or PROGRAM))
    return Path(path) if path else None


def _version(program: Path) -> str:
    """Return the version, and make sure that this is lm.rs: `backend` is a common name. Raises `EngineUnavailable`."""
    try:
        text = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineUnavailable(f"{program} cannot be run ({error}).") from error
    name, _, number = text.strip().partition(" ")
    if name != PROGRAM_NAME:
        raise EngineUnavailable(f"{program} is not lm.rs's `{PROGRAM}`; set {VARIABLE} to that one.")
    return number
