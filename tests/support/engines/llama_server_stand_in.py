"""Stands in for llama.cpp's `llama-server`: the same command line and paths, words instead of a model.

It answers with a word per token and counts requests whose client left early. For a prompt that begins with token 13,
the process ends after two tokens; a prompt that begins with token 14 is refused.
"""

from __future__ import annotations

import http.server
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

TIME_PER_TOKEN = 0.003  # seconds
WORDS = (" once", " upon", " a", " time", " there", " lived", " two", " mice")


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512  # connections that come at once


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, {"status": "ok"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["prompt"][0] == 14:
            self._answer(400, {"error": {"code": 400, "message": "token 14 is refused"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            self._stream(asked)
        except OSError:
            with Path(os.environ["STAND_IN_NOTES"]).open("a") as notes:
                notes.write("left\n")

    def _stream(self, asked: dict[str, Any]) -> None:
        text, words = "", [WORDS[at % len(WORDS)] for at in range(asked["n_predict"])]
        for produced, word in enumerate(words, start=1):
            time.sleep(TIME_PER_TOKEN)
            if asked["prompt"][0] == 13 and produced == 3:
                os._exit(3)
            text += word
            if met := [stop for stop in asked["stop"] if stop in text]:
                rest = word[: word.find(met[0])] if met[0] in word else ""
                self._event(rest, produced, stop="word")
                return
            self._event(word, produced)
        self._event("", asked["n_predict"], stop="limit")

    def _event(self, content: str, predicted: int, stop: str = "") -> None:
        event = {"content": content, "tokens_predicted": predicted, "stop": bool(stop)}
        self.wfile.write(b"data: " + json.dumps(event | ({"stop_type": stop} if stop else {})).encode() + b"\n\n")

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        return


def main() -> None:
    if "--version" in sys.argv:
        print("version: 4711 (stand-in)", file=sys.stderr)
        return
    if "--list-devices" in sys.argv:
        print("Available devices:" + os.environ.get("STAND_IN_DEVICES", ""))
        return
    given = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    Path(os.environ["STAND_IN_NOTES"]).write_text(json.dumps(sys.argv[1:]) + "\n")
    if Path(given["--model"]).read_bytes()[:4] != b"GGUF":
        sys.exit(1)
    Server((given["--host"], int(given["--port"])), Handler).serve_forever()


if __name__ == "__main__":
    main()
