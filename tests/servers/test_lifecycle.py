"""What a server says of an engine that could not be loaded."""

from __future__ import annotations

from typing import Any

from servers.lifecycle import Lifecycle
from servers.settings import ServerSettings


class Broken:
    """An engine that fails in a way of its own."""

    async def start(self) -> None:
        raise RuntimeError("no such tensor\nand more")


async def test_whatever_keeps_an_engine_from_loading_is_said() -> None:
    engine: Any = Broken()
    lifecycle = Lifecycle(engine, None, ServerSettings())  # type: ignore[arg-type]  # it comes to no prompt
    lifecycle.open()
    await lifecycle.settled()
    assert (lifecycle.state, lifecycle.failure) == ("failed", "no such tensor")
