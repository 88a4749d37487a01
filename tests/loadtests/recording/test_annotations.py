"""What a Grafana is told of a run, by a real Locust."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from loadtests.harness.recording.annotations import grafana_annotations
from tests.support.loadtests.locust_process import start
from tests.support.records import META
from tests.support.servers.served import served

TOKEN = "glsa_secret"


@dataclass
class Grafana:
    """Its annotations by id, as its HTTP API makes and changes them."""

    url: str = ""
    token: str = TOKEN
    delay: float = 0.0
    annotations: dict[int, dict[str, Any]] = field(default_factory=dict)


@contextmanager
def grafana(**settings: Any) -> Iterator[Grafana]:
    known = Grafana(**settings)

    class Api(BaseHTTPRequestHandler):
        def answer(self, status: int, document: dict[str, Any]) -> None:
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def given(self) -> dict[str, Any] | None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            time.sleep(known.delay)
            if self.headers["Authorization"] == f"Bearer {known.token}":
                return dict(body)
            self.answer(401, {"message": "Unauthorized"})
            return None

        def do_POST(self) -> None:
            if (body := self.given()) is not None:
                number = len(known.annotations) + 1
                known.annotations[number] = body | {"path": self.path}
                self.answer(200, {"id": number, "message": "Annotation added"})

        def do_PATCH(self) -> None:
            if (body := self.given()) is not None:
                known.annotations[int(self.path.rpartition("/")[2])] |= body
                self.answer(200, {"message": "Annotation patched"})

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    known.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


STAGES = ("--stages", "1,3", "--stage-seconds", "1.5", "--warm-up", "0.5", "--output-tokens", "2")


def test_a_run_and_its_stages_are_marked_from_begin_to_end(tmp_path: Path) -> None:
    with grafana() as known, served("ttft=0.1") as server:
        environment = {"GRAFANA_URL": known.url, "GRAFANA_TOKEN": TOKEN}
        load = start(server, tmp_path, *STAGES, environment=environment)
        output = load.wait()
        told = load.meta
    run, *stages = known.annotations.values()
    assert [mark["text"] for mark in stages] == ["1 user", "3 users"]
    assert run["path"] == "/api/annotations"
    assert run["tags"] == ["enginebench", told.run_id, "fake", "concurrent", "run"]
    assert stages[0]["tags"] == ["enginebench", told.run_id, "fake", "concurrent", "stage"]
    started = datetime.fromisoformat(told.started_at).timestamp() * 1e3
    assert run["time"] == pytest.approx(started, abs=3000)
    for mark, stage in zip(stages, told.stages, strict=True):
        assert stage.end is not None
        assert mark["time"] - run["time"] == pytest.approx(stage.start / 1e6, abs=1.5)
        assert mark["timeEnd"] - run["time"] == pytest.approx(stage.end / 1e6, abs=1.5)
    assert run["timeEnd"] >= stages[-1]["timeEnd"]
    assert TOKEN not in output + (load.run / "meta.json").read_text()


def test_a_grafana_that_refuses_costs_one_warning(tmp_path: Path) -> None:
    with grafana(token="another") as known, served("ttft=0.1") as server:
        environment = {"GRAFANA_URL": known.url, "GRAFANA_TOKEN": TOKEN}
        load = start(server, tmp_path, *STAGES, environment=environment)
        output = load.wait()
        assert load.process.returncode == 0
    assert output.count("Grafana does not accept annotations") == 1
    assert "401" in output


def test_without_an_address_nothing_is_marked() -> None:
    assert grafana_annotations(META, 0, {}) is None


@pytest.mark.parametrize("address", ["localhost:3000", "http://", "ftp://x"])
def test_a_wrong_address_is_said_before_the_run(address: str) -> None:
    with pytest.raises(ValueError, match="GRAFANA_URL is not an http or https address"):
        grafana_annotations(META, 0, {"GRAFANA_URL": address})
