"""Serve an engine of the tests, and print the server's address when it is ready."""

from __future__ import annotations


def serve(name: str, target: str, options: dict[str, str]) -> None:
    """`target` is "module:Class"."""
    from engines.process.supervisor import ChildEngine
    from servers.app import create_app
    from servers.http.address import listen
    from servers.openai.prompts import ByteTokenizer
    from servers.serve import run
    from servers.settings import ServerSettings

    settings = ServerSettings(port=0, warm_up_tokens=0)
    run(create_app(ChildEngine(name, None, options, target=target), ByteTokenizer(), settings), listen(settings))
