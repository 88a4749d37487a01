"""Which server is found, among real ones on loopback."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from enginebench.studies.quick.discovery import FoundServer, find_server


@contextmanager
def answering(document: object) -> Iterator[int]:
    """A server that answers every page with this document, and its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_first_port_with_a_model_is_taken() -> None:
    with (
        answering({"data": []}) as empty,
        answering(["no", "models"]) as other,
        answering({"object": "list", "data": [{"id": "smollm2"}, {"id": "qwen"}]}) as served,
    ):
        found = find_server({1: "nothing listens", empty: "no model", other: "another page", served: "vLLM's port"})
    assert found == FoundServer(f"http://127.0.0.1:{served}", "vLLM's port", ("smollm2", "qwen"))


def test_nothing_is_found_where_nothing_answers() -> None:
    assert find_server({1: "a port on which nothing listens"}) is None
