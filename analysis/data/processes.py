"""Blocks of lines are read ahead: by two threads, or, if a run is large and there are four cores or more, by several
processes, because decoding JSON holds the interpreter's lock.

Each process, `python -m analysis.data.processes`, takes pickled blocks from its standard input and writes what they
hold to its standard output. `multiprocessing` would import the main program again, whatever that does.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

import polars as pl

from analysis.data.lines import Block, Lines, read_block

LARGE = 128 * 1024 * 1024  # bytes of lines from which starting processes is worth its time
MOST = 8  # processes: more decode no faster than one can write
AHEAD = 2  # blocks that each process is given before its first answer
THREADS = 2  # while one decodes, the other can read the file and join tables, which need no lock
ROOT = Path(__file__).parents[2]


def read_blocks(blocks: Sequence[Block]) -> Iterator[Lines]:
    """What each block holds, in their order. Raises `OSError` where a file cannot be read."""
    processes = min(pl.thread_pool_size() // 2, MOST)  # the other half of the cores parse lists and write
    if processes < 2 or sum(block.end - block.start for block in blocks) < LARGE:
        yield from _read_by_threads(blocks)
        return
    with ExitStack() as stack:
        started = [stack.enter_context(_Reader()) for _ in range(processes)]
        for index, block in enumerate(blocks[: AHEAD * processes]):
            started[index % processes].give(block)
        for index in range(len(blocks)):
            yield started[index % processes].take()
            following = index + AHEAD * processes
            if following < len(blocks):
                started[following % processes].give(blocks[following])


def _read_by_threads(blocks: Sequence[Block]) -> Iterator[Lines]:
    given: deque[Future[Lines]] = deque()
    with ThreadPoolExecutor(THREADS) as pool:
        for block in blocks:
            given.append(pool.submit(read_block, block))
            if len(given) > THREADS:
                yield given.popleft().result()
        while given:
            yield given.popleft().result()


class _Reader:
    """A process that reads blocks. It is ended on leaving, whatever it is doing."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "analysis.data.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path, "POLARS_MAX_THREADS": "1"},
        )

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def give(self, block: Block) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # what ended it is seen when its answer is taken
            _send(self._process.stdin, block)

    def take(self) -> Lines:
        assert self._process.stdout is not None
        try:
            found = pickle.load(self._process.stdout)
        except EOFError:
            raise OSError(f"a process that reads lines ended with {self._process.wait()}") from None
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, Lines)
        return found


def _send(pipe: IO[bytes], value: object) -> None:
    pickle.dump(value, pipe, pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def main() -> None:
    gc.disable()  # lines make no cycles of references: see analysis/data/table.py
    with suppress(EOFError, BrokenPipeError):
        while True:
            block = pickle.load(sys.stdin.buffer)
            try:
                found: Lines | Exception = read_block(block)
            except OSError as error:
                found = error
            _send(sys.stdout.buffer, found)


if __name__ == "__main__":
    main()
