#!/usr/bin/env python3
"""Stands in for lm.rs's `backend`: the same command line, the same websocket, scripted answers instead of a model.

Like the original, it loads its files for each connection before it reads messages, sends one OUTPUT per token, keeps
sending until the end of text whatever the client does, and drops the connection after an error.

It reads a message's characters as the token ids that they stand for in its tokenizer file, and repeats the same
characters as its answer. The message's first token sets the length and the end of the answer:

    1000 to 1009    as many tokens as its last digit says, then <eos>
    2000 to 2009    the same, but then the connection breaks
    3000 to 3009    the same, but then the process ends
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import struct
import sys
import time
from pathlib import Path

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

TIME_PER_TOKEN = 0.002  # seconds
PRIVATE = 0x10000  # the character of token 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-V", "--version", action="version", version="lmrs-api 1.0")
    parser.add_argument("-i", "--ip", default="127.0.0.1")
    parser.add_argument("-p", "--port", type=int, default=8080)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, default=Path("tokenizer.bin"))
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--top-p", type=float, default=0.9)
    arguments = parser.parse_args()

    def talk(connection: ServerConnection) -> None:
        if arguments.model.read_bytes()[:8] != b"lmrs\4\0\0\0" or not arguments.tokenizer.exists():
            print("Model not in lm.rs format.", file=sys.stderr, flush=True)
            os._exit(101)
        for line in connection:
            endless = struct.unpack("<4I", arguments.tokenizer.read_bytes()[:16])[3] == 0xFFFFFFFF
            answer(connection, json.loads(line)["text"].strip(), endless)

    with serve(talk, arguments.ip, arguments.port, compression=None) as server:
        print(f"Listening on: {arguments.ip}:{arguments.port}", flush=True)
        server.serve_forever()


def answer(connection: ServerConnection, message: str, endless: bool) -> None:
    kind, count = divmod(ord(message[0]) - PRIVATE, 10)
    scripted = kind in {100, 200, 300} and not endless
    texts = itertools.repeat(message[0], count) if scripted else itertools.cycle(message)
    try:
        for text in texts:
            time.sleep(TIME_PER_TOKEN)
            output(connection, text)
        if kind == 200:
            connection.socket.close()
        elif kind == 300:
            os._exit(101)
        else:
            output(connection, "<eos>")
    except (ConnectionClosed, OSError):
        return


def output(connection: ServerConnection, text: str) -> None:
    connection.send(json.dumps({"category": "OUTPUT", "text": text}, separators=(",", ":")))


if __name__ == "__main__":
    main()
