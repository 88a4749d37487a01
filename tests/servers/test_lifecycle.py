"""What a server says of an engine that could not be loaded."""

from __future__ import annotations

import asyncio
from typing import Any

from servers.lifecycle import Lifecycle
from servers.settings import ServerSettings


class Broken:
    """An engine that fails in a way of its own."""

    async def start(self) -> None:
        raise RuntimeError("no such tensor\nand more")


def test_whatever_keeps_an_engine_from_loading_is_said() -> None:
    engine: Any = Broken()

    async def main() -> Lifecycle:
        lifecycle = Lifecycle(engine, None, ServerSettings())  # type: ignore[arg-type]  # it comes to no prompt
        lifecycle.open()
        await lifecycle.settled()
        return lifecycle

    lifecycle = asyncio.run(main())
    assert (lifecycle.state, lifecycle.failure) == ("failed", "no such tensor")
