"""Models from the Hugging Face hub, against a small hub on loopback that its real client talks to."""

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

COMMIT = "c" * 40
FILES = {
    "config.json": b'{"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 64}',
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(range(256)) * 8000,
    "pytorch_model.bin": b"a pickle, which nobody should load",
    "onnx/config.json": b"{}",
    "modeling_own.py": b"print('code of its own')",
}


class Hub(http.server.ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), HubAnswer)
        self.fetched: list[str] = []


class HubAnswer(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/lab/small/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
                for name, body in FILES.items()
            ]
            self._answer(200, json.dumps(tree).encode())
        elif path.startswith("/api/models/lab/small"):
            siblings = [{"rfilename": name, "size": len(body)} for name, body in FILES.items()]
            self._answer(200, json.dumps({"id": "lab/small", "sha": COMMIT, "siblings": siblings}).encode())
        elif path.startswith("/api/models/lab/gated"):
            self._answer(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted."})
        elif path.startswith(f"/lab/small/resolve/{COMMIT}/"):
            name = path.removeprefix(f"/lab/small/resolve/{COMMIT}/")
            if self.command == "GET":
                self.server.fetched.append(name)
            etag = hashlib.sha256(FILES[name]).hexdigest()
            self._answer(200, FILES[name], {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})
        else:
            self._answer(404, b"", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def fetch(hub: Hub, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the client reads where its hub is when it is imported."""
    environment = os.environ | {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-m", "enginebench", "models", "fetch", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_weights_and_tokenizer_come_and_other_formats_and_code_stay_away(hub: Hub, tmp_path: Path) -> None:
    done = fetch(hub, tmp_path, "lab/small", "--json")
    assert done.returncode == 0, done.stderr
    model = json.loads(done.stdout)
    assert (model["name"], model["trust_remote_code"]) == ("lab/small", False)
    assert sorted(hub.fetched) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (Path(model["folder"]) / "model.safetensors").read_bytes() == FILES["model.safetensors"]


def test_code_comes_only_when_it_is_trusted(hub: Hub, tmp_path: Path) -> None:
    done = fetch(hub, tmp_path, "lab/small", "--trust-remote-code", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trust_remote_code"] is True
    assert "modeling_own.py" in hub.fetched


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param(
            "lab/missing", "has no model lab/missing that you have access to; name a model", id="no such model"
        ),
        pytest.param(
            "lab/gated", "lab/gated asks you to accept its licence: do that at http", id="a licence to accept"
        ),
    ],
)
def test_what_the_hub_refuses_is_said_in_a_sentence(name: str, sentence: str, hub: Hub, tmp_path: Path) -> None:
    done = fetch(hub, tmp_path, name)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_no_network_is_said_in_a_sentence(tmp_path: Path) -> None:
    with Hub() as gone:
        pass  # its port is free again: nobody answers
    done = fetch(gone, tmp_path, "lab/small")
    assert done.returncode == 2
    assert "lab/small could not be downloaded (" in done.stderr
    assert "Traceback" not in done.stderr
