"""What several test files share."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tokenizers import Tokenizer

from engines.machine.devices import visible_gpus
from engines.models.fetch import fetch_model
from engines.rust import programs as rust_programs
from tests.support.engines.reference import PROMPTS
from tests.support.engines.suite_cache import suite_cache

T = TypeVar("T")
LONG = (  # longest first
    "tests/studies/tune/test_command.py",
    "tests/studies/quick/",
    "tests/engines/bench/test_quality.py",
    "tests/test_installation.py",
    "tests/validation/speed/test_server_soak.py",
    "tests/loadtests/scenarios/test_processes.py",
    "tests/validation/plan/test_planned_fleet.py",
    "tests/studies/study/test_runner.py",
    "tests/loadtests/command/",
    "tests/docker/test_bundle.py",
    "tests/engines/contract/",
    "tests/loadtests/calibration/",
    "tests/validation/statistics/",
    "tests/loadtests/scenarios/test_capacity.py",
    "tests/loadtests/scenarios/",
)
TORCH = "torch"  # the group with the most work

os.environ.setdefault("ENGINEBENCH_RUST_PROFILE", "quick")  # for every process that a test starts, too


def pytest_configure(config: pytest.Config) -> None:
    """Also before pytest-xdist starts its processes, which inherit the variable."""
    if not hasattr(config, "workerinput"):
        cache = ExitStack()
        cache.enter_context(suite_cache())
        config.add_cleanup(cache.close)
    gc.disable()  # while tests are collected, of which nothing is garbage: looking for it takes a quarter of the time


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under pytest-xdist, tests that share a fixture of their module run in the same process, so that it is made once.

    Fixtures of the whole session are safe to make in several processes: what they build appears in one step, under a
    lock (`engines.models.cache.built_once`). Files that need torch in the test's own process are one group, `TORCH`,
    because its import takes eight seconds of CPU.

    With `--no-loadscope-reorder` groups start in this order: `TORCH`; the places `LONG`, as a long test at the end
    would run alone; the largest ones. Last are those whose name ends with that of a program written in Rust: on a
    fresh machine they wait until it is built, and nothing else stands behind them.

    Tests that need a GPU are skipped where there is none.
    """
    for_gpus = [item for item in items if item.get_closest_marker("gpu") is not None]
    if for_gpus and not visible_gpus():
        for item in for_gpus:
            item.add_marker(pytest.mark.skip(reason="there is no NVIDIA GPU here, or no driver for it"))
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("xdist_group") is None:
            fixtures = {name: made[-1] for name, made in item._fixtureinfo.name2fixturedefs.items() if made}
            shared = sorted(name for name, fixture in fixtures.items() if fixture.scope == "module")
            if shared:
                variants = item.callspec.params if hasattr(item, "callspec") else {}
                group = [str(item.path), *(str(variants[name]) for name in shared if name in variants)]
                item.add_marker(pytest.mark.xdist_group(" ".join(group)))
    sizes = Counter(_group(item) for item in items)

    def place(item: pytest.Item) -> tuple[bool, bool, int, int]:
        group = _group(item)
        long = next((at for at, place in enumerate(LONG) if place in item.path.as_posix()), len(LONG))
        return group.split()[-1] in rust_programs.PROGRAMS, group != TORCH, long, -sizes[group]

    items.sort(key=place)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), 300))
    return True


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return item.nodeid if marker is None else str(marker.args[0])


class BackgroundLoop:
    """An event loop on a thread of its own, so that an engine can outlive one test function."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="background loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 300) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="session")
def background() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop()
    yield loop
    loop.close()


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """`program("promtool")` is its path. Where it is missing the test is skipped with a sentence, or fails under CI."""

    def find(name: str) -> str:
        # Debian keeps servers such as haproxy in /usr/sbin, which only an administrator has on the path.
        folders = (str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin")
        if path := shutil.which(name, path=os.pathsep.join(folders)):
            return path
        sentence = f"`{name}` is not installed; `make setup system` installs what the suite needs where it may"
        if os.environ.get("CI") == "true":
            pytest.fail(sentence)
        pytest.skip(sentence)

    return find


@pytest.fixture(scope="session")
def rust_program() -> Callable[[str], Path]:
    """`rust_program("candle")` is an engine written in Rust, built if it was not. Without cargo its tests are skipped
    with a sentence, or fail under CI."""

    def build(name: str) -> Path:
        if rust_programs.find(name) is None and rust_programs.cargo_environment() is None and not os.environ.get("CI"):
            pytest.skip(f"{name} is not built, and {rust_programs.NO_CARGO}")
        return rust_programs.build(name)

    return build


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """SmolLM2's, as is the next one."""
    return Tokenizer.from_file(str(fetch_model().folder / "tokenizer.json"))


@pytest.fixture(scope="session")
def prompts(tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    return [tuple(tokenizer.encode(prompt).ids) for prompt in PROMPTS]
