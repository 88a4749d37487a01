"""What the client cannot send for want of its own descriptors is its own failure, and not the server's."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.harness.client.read_batcher import ReadBatcher
from tests.support.loadtests.asking import GOOD_END, ask_scripted
from tests.support.servers.wire_script import HEAD, Step, WireServer, frame, token

resource = pytest.importorskip("resource", reason="limits on descriptors are POSIX")
ROOT = Path(__file__).parents[3]

ASK = """
import json, os, resource, sys, time
from loadtests.harness.client import stamped_connection
from loadtests.harness.client.client import Client
from tests.support.loadtests.asking import due
stamped_connection.CONNECT_TIMEOUT = 1.0
clients = [Client(url) for url in sys.argv[1:]]
for client in clients:
    client.request(due(time.monotonic_ns()))
    client.close()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, hard))
full = []
try:
    while True:
        full.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
ended = [client.request(due(time.monotonic_ns())) for client in clients]
for one in full:
    os.close(one)
ended += [client.request(due(time.monotonic_ns())) for client in clients]
print(json.dumps([(seen.outcome, seen.detail, seen.t_send is None) for seen in ended]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="open descriptors are counted in /proc")
def test_a_client_without_descriptors_says_so_and_goes_on_when_there_are_some() -> None:
    """By address, and by name: a name cannot be looked up without a descriptor either."""
    with WireServer([HEAD, frame(token()), GOOD_END]) as server:
        named = server.url.replace("127.0.0.1", "localhost")
        command = [sys.executable, "-c", ASK, server.url, named]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.returncode == 0, done.stderr
    without, by_name, *later = json.loads(done.stdout)
    for outcome, detail, was_not_sent in (without, by_name):
        assert (outcome, was_not_sent) == ("unsent", True)
        assert "Too many open files" in detail
    assert [outcome for outcome, *_ in later] == ["ok", "ok"]


def test_reads_go_on_where_there_is_no_descriptor_to_make_them_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer whose reads may wait opens one; an error there left its user waiting for ever."""

    def refuse() -> ReadBatcher:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("loadtests.harness.client.exchange.read_batcher", refuse)
    slow: list[Step] = [HEAD, *(part for _ in range(6) for part in (frame(token()), 0.03)), GOOD_END]
    seen = ask_scripted(*slow)
    assert (seen.outcome, seen.chunks) == ("ok", 6)
