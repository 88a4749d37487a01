"""One request of the client to a scripted server, and its record."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from enginebench.records.request import RequestRecord
from loadtests.harness.client.call import Call
from loadtests.harness.client.client import Client
from tests.support.servers.wire_script import DONE, END, Step, WireServer, finish, frame, usage

CHAT = Call("/v1/chat/completions", b'{"stream": true}', True)
GOOD_END = frame(finish(usage=usage(2))) + frame(DONE) + END


def due(t_sched: int = 0, call: Call = CHAT) -> Call:
    """Return the call with a new record: it is due at this reading of the monotonic clock."""
    record = RequestRecord.planned()
    record.t_sched = t_sched
    return replace(call, record=record)


def ask(server: WireServer, call: Call = CHAT, **settings: Any) -> RequestRecord:
    client = Client(server.url, **settings)
    heard: list[RequestRecord] = []
    seen = client.request(due(time.monotonic_ns(), call), heard.append)
    client.close()
    assert heard == [seen]
    return seen


def ask_scripted(*script: Step, call: Call = CHAT, **settings: Any) -> RequestRecord:
    with WireServer(script) as server:
        return ask(server, call, **settings)
