"""Large runs are read by several processes, because decoding JSON holds the interpreter's lock."""

from __future__ import annotations

import gc
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context

import polars as pl

from analysis.run.lines import Block, Lines, read_block

LARGE = 128 * 1024 * 1024  # bytes of lines from which starting processes is worth its time
MOST = 8  # processes: more decode no faster than one can write
AHEAD = 2  # blocks that each process may be ahead of the writer


def read_blocks(blocks: Sequence[Block]) -> Iterator[Lines]:
    """What each block holds, in their order. Raises `ValueError` for a list of something other than whole numbers."""
    processes = min(pl.thread_pool_size(), MOST)
    if processes == 1 or sum(block.end - block.start for block in blocks) < LARGE:
        yield from map(read_block, blocks)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), _set_up) as pool:
        waiting, begun = iter(blocks), deque[Future[Lines]]()
        try:
            begun.extend(pool.submit(read_block, block) for block in islice(waiting, AHEAD * processes))
            while begun:
                yield begun.popleft().result()
                begun.extend(pool.submit(read_block, block) for block in islice(waiting, 1))
        finally:
            pool.shutdown(cancel_futures=True)


def _set_up() -> None:
    os.environ["POLARS_MAX_THREADS"] = "1"  # read when Polars first computes
    gc.disable()  # see analysis/run/table.py
