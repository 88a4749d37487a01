"""Servers that stay loaded from one run to the next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import TracebackType

from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.run_progress import progress
from loadtests.harness.command.server_process import StartedServer
from loadtests.harness.run.options import SERVER_READY, SERVER_STARTED


class LoadedServers:
    """Keep one server loaded at a time, or with `keep` all of them. Leaving the block ends them."""

    def __init__(self, terminal: Terminal, keep: bool) -> None:
        self._terminal, self._keep = terminal, keep
        self._servers: dict[Hashable, StartedServer] = {}

    def __enter__(self) -> LoadedServers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(list(self._servers)).__exit__(kind, error, trace)

    @contextmanager
    def loaded(
        self,
        key: Hashable,
        start: Callable[[], StartedServer],
        title: str,
        fresh: bool = False,
        waiting: Callable[[], None] = lambda: None,
    ) -> Iterator[tuple[StartedServer, Mapping[str, str]]]:
        """Yield the server of `key`, and the environment variables for a process that tests it. If it is not loaded,
        `start` makes it; with `fresh`, `start` makes a server for this block only.

        `waiting` is called while the server loads, and may raise. Raises `ServerFailed`.
        """
        with ExitStack() as stack:
            server = None if fresh else self._servers.get(key)
            if server is not None and server.alive:
                variables = server.variables
                for name in (SERVER_STARTED, SERVER_READY):  # the loading time belongs to an earlier run
                    variables.pop(name, None)
            else:
                self._end([key] if self._keep else list(self._servers)).close()
                server = self._load(start, title, waiting)
                variables = server.variables
                if fresh:
                    stack.push(server)
                else:
                    self._servers[key] = server
            yield server, variables

    def stop(self) -> None:
        self._end(list(self._servers)).close()

    def _load(self, start: Callable[[], StartedServer], title: str, waiting: Callable[[], None]) -> StartedServer:
        def loading(seconds: float) -> None:
            show(None, f"loading, {seconds:.0f} s")
            waiting()

        with progress(self._terminal.console, title) as show, ExitStack() as stack:
            server = start()
            stack.enter_context(server)
            server.wait_until_ready(loading)
            stack.pop_all()  # the server stays up
            return server

    def _end(self, keys: list[Hashable]) -> ExitStack:
        """Return a stack that ends these servers, all at the same time, when it is closed."""
        ending = ExitStack()
        servers = [server for key in keys if (server := self._servers.pop(key, None)) is not None]
        for server in servers:
            ending.push(server)  # waits for the server, even if another one fails
        for server in servers:
            ending.callback(server.terminate)  # called before waiting for any of them
        return ending
