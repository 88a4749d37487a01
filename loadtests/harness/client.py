"""One request in, one observation out: the measuring client.

The connection is open before the timed region starts, and `t_send` is taken at the write itself. Every read is stamped
before anything looks at it, by the kernel where the kernel stamps (plain TCP under Linux). Splitting events and reading
JSON waits until the request has ended, so that one request's bookkeeping never delays another's stamp.

See how true it is on this machine:  enginebench calibrate
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from loadtests.harness.observation import Observation

__all__ = ["Call", "Client", "Observation"]


@dataclass(frozen=True, slots=True)
class Call:
    """What to send. `body` is the JSON document, `streamed` says whether the answer comes as server-sent events."""

    path: str  # "/v1/chat/completions"
    body: bytes
    streamed: bool


class Client:
    """One keep-alive connection to one server; one request at a time, as one user has. Belongs to one greenlet."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] = {},
        insecure: bool = False,
        connect_timeout: float = 10.0,
        silence_timeout: float = 60.0,
        request_timeout: float = 600.0,
    ) -> None:
        """`url` is the server's origin, perhaps with a path before `/v1`. Timeouts in seconds; `silence_timeout` is how long no byte may come.

        Raises `ValueError` with a sentence where `url` is no http or https address.
        """
        raise NotImplementedError

    def connect(self) -> None:
        """Open the connection, TLS included, if it is not open. Call it before the timed region.

        Raises `OSError` with a sentence when the server cannot be reached or its certificate is not trusted.
        """
        raise NotImplementedError

    def request(self, call: Call, t_sched: int, on_end: Callable[[Observation], None]) -> Observation:
        """Send `call`, wait for the whole answer, give the observation to `on_end` and return it.

        Never raises for what a server or a network can do: that is the observation's `outcome`. When the greenlet is
        killed meanwhile (`gevent.GreenletExit`), `on_end` gets the outcome `cut_off` and the exception goes on.
        `t_sched` is an absolute reading of `time.monotonic_ns()`, as are all stamps of the observation.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection. The client may be used again: it connects anew."""
        raise NotImplementedError
