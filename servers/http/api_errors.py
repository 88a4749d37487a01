"""Error responses in OpenAI's shape."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Literal, get_args

import msgspec
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from engines.contract.errors import EngineError, EngineOverloaded

ServerOutcome = Literal["ok", "cancelled", "rejected", "bad_request", "timeout", "engine_error", "unavailable"]
OUTCOMES: tuple[ServerOutcome, ...] = get_args(ServerOutcome)

_OUTCOME_OF_STATUS: dict[int, ServerOutcome] = {
    429: "rejected",
    500: "engine_error",
    503: "unavailable",
    504: "timeout",
}
_TYPE_OF_STATUS = {
    401: "authentication_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}

log = logging.getLogger("enginebench.server")


class ClientGone(Exception):
    """The client closed its connection before the answer was complete."""


class ApiError(Exception):
    """`code` is for programs, `param` names the field at fault, `retry_after` is in whole seconds."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
        headers: Mapping[str, str] = {},
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = dict(headers)
        if retry_after is not None:
            self.headers["retry-after"] = str(retry_after)

    @property
    def outcome(self) -> ServerOutcome:
        return _OUTCOME_OF_STATUS.get(self.status, "bad_request")

    def body(self) -> bytes:
        """Return the JSON document: `{"error": {"message", "type", "param", "code"}}`."""
        kind = _TYPE_OF_STATUS.get(self.status, "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})

    def response(self) -> Response:
        return Response(self.body(), self.status, self.headers, media_type="application/json")


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def from_engine(error: EngineError) -> ApiError:
    """Return the response for an engine's failure. Its sentence is meant for clients."""
    if isinstance(error, EngineOverloaded):
        seconds = math.ceil(error.retry_after or 1)
        return ApiError(429, str(error), code="engine_overloaded", retry_after=seconds)
    match error.kind:
        case "bad_request":
            return bad_request(str(error))
        case "unavailable":
            return ApiError(503, str(error), code="engine_unavailable", retry_after=1)
        case "crashed":
            return ApiError(500, str(error), code="engine_crashed")
        case _:
            return ApiError(500, str(error), code="engine_error")


def install(app: FastAPI) -> None:
    """Give every error response of `app` the same shape: no HTML, no traceback."""

    async def api_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return error.response()

    async def framework_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        paths = ", ".join(route.path for route in app.routes if isinstance(route, Route))
        message = {
            404: f"This server has no path {request.url.path}; its paths are {paths}.",
            405: f"{request.url.path} does not support {request.method}.",
        }.get(error.status_code, str(error.detail))
        return ApiError(error.status_code, message, headers=error.headers or {}).response()

    async def unexpected_error(request: Request, error: Exception) -> Response:
        return unexpected(error).response()

    async def client_gone(request: Request, error: Exception) -> Response:
        return Response(status_code=499)

    app.add_exception_handler(ApiError, api_error)
    app.add_exception_handler(HTTPException, framework_error)
    app.add_exception_handler(ClientGone, client_gone)
    app.add_exception_handler(Exception, unexpected_error)


def unexpected(error: Exception) -> ApiError:
    """Log the traceback of a defect, and return a sentence for the client."""
    log.error("unexpected error while answering a request", exc_info=error)
    return ApiError(500, "Internal server error; the server's log has the details.", code="internal_error")
