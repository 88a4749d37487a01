"""The surface: which path does what, and its documentation. `create_app` is all that others need."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.responses import PlainTextResponse, Response

from engines.contract.base import EngineStats
from servers.gpu import GpuCollector
from servers.http import errors
from servers.http.access import check_key, read_body
from servers.http.errors import ApiError
from servers.lifecycle import Lifecycle, ServedEngine
from servers.metrics import Metrics, Moment, own_version, registry_of
from servers.openai.completions import Answer, Room
from servers.openai.document import Document, takes
from servers.openai.intake import Intake
from servers.openai.prompt import Tokenizer
from servers.openai.schemas import (
    ChatCompletion,
    ChatRequest,
    Completion,
    CompletionRequest,
    Detokenized,
    DetokenizeRequest,
    ErrorDocument,
    ModelCard,
    ModelList,
    Tokenized,
    TokenizeRequest,
)
from servers.settings import ServerSettings

REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorDocument, "description": "The request makes no sense, or asks for what is not offered."},
    401: {"model": ErrorDocument, "description": "No valid API key."},
    404: {"model": ErrorDocument, "description": "No such model."},
    408: {"model": ErrorDocument, "description": "The body took too long to arrive."},
    413: {"model": ErrorDocument, "description": "The body is too large."},
    415: {"model": ErrorDocument, "description": "The body is not `application/json`."},
    503: {"model": ErrorDocument, "description": "The engine is loading, restarting or stopping."},
}
FAILURES: dict[int | str, dict[str, Any]] = {
    429: {"model": ErrorDocument, "description": "The queue is full; `Retry-After` estimates when it is not."},
    500: {"model": ErrorDocument, "description": "The engine failed."},
    504: {"model": ErrorDocument, "description": "The answer took longer than the request allows."},
}
EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
STREAM = {
    "content": {"text/event-stream": {"itemSchema": EVENT}},
    "description": "The answer; with `stream`, as events of JSON, of which the last is `[DONE]`.",
}


def create_app(engine: ServedEngine, tokenizer: Tokenizer, settings: ServerSettings) -> FastAPI:
    """The server around one engine. Loading starts with the app's lifespan; `app.state.lifecycle` tells how it goes."""
    lifecycle = Lifecycle(engine, tokenizer, settings)
    latest = _LatestStats()
    metrics = Metrics(engine.name, lambda: _moment(lifecycle, latest))
    gpus = GpuCollector(settings.gpu_period)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        gpus.start()
        lifecycle.open()
        try:
            yield
        finally:
            await lifecycle.close()
            gpus.stop()

    app = FastAPI(title="enginebench", version=own_version(), lifespan=lifespan, redoc_url=None)
    app.state.lifecycle = lifecycle
    errors.install(app)
    room = Room(settings, lifecycle, Intake(tokenizer, settings), metrics)
    _add_generation(app, room)
    _add_tokens(app, room)
    _add_description(app, room)
    _add_observation(app, lifecycle, latest, registry_of([metrics, gpus]))
    document = Document(app, settings, tokenizer.vocab_size)
    app.openapi = lambda: document(engine.info)  # type: ignore[method-assign]
    return app


class _LatestStats:
    """The engine's last word on its memory: asked for before a scrape, because a collector cannot wait."""

    stats = EngineStats()


def _moment(lifecycle: Lifecycle, latest: _LatestStats) -> Moment:
    return Moment(
        running=lifecycle.admission.running,
        waiting=lifecycle.admission.waiting,
        ready=lifecycle.state == "ready",
        restarts=lifecycle.engine.restarts,
        info=lifecycle.engine.info,
        stats=latest.stats,
    )


def _add_generation(app: FastAPI, room: Room) -> None:
    @app.post(
        "/v1/chat/completions",
        response_model=ChatCompletion,
        responses=REFUSALS | FAILURES | {200: STREAM},
        openapi_extra=takes(ChatRequest),
    )
    async def chat_completions(request: Request) -> Response:
        """Answer a chat, as server-sent events where `stream` is true."""
        return Answer(room, "chat")

    @app.post(
        "/v1/completions",
        response_model=Completion,
        responses=REFUSALS | FAILURES | {200: STREAM},
        openapi_extra=takes(CompletionRequest),
    )
    async def completions(request: Request) -> Response:
        """Go on from a prompt, as server-sent events where `stream` is true."""
        return Answer(room, "completions")


def _add_tokens(app: FastAPI, room: Room) -> None:
    @app.post("/tokenize", response_model=Tokenized, responses=REFUSALS, openapi_extra=takes(TokenizeRequest))
    async def tokenize(request: Request) -> Response:
        """Token ids of a prompt, or of a chat as the model's template renders it."""
        info = room.lifecycle.info()
        content = await read_body(request.scope, request.receive, room.settings)
        ids = await room.intake.tokens(room.intake.parse(content, TokenizeRequest, info))
        return _json({"count": len(ids), "max_model_len": info.context_length, "tokens": ids})

    @app.post("/detokenize", response_model=Detokenized, responses=REFUSALS, openapi_extra=takes(DetokenizeRequest))
    async def detokenize(request: Request) -> Response:
        """The text that token ids stand for."""
        info = room.lifecycle.info()
        content = await read_body(request.scope, request.receive, room.settings)
        return _json({"prompt": room.intake.text(room.intake.parse(content, DetokenizeRequest, info).tokens)})


def _add_description(app: FastAPI, room: Room) -> None:
    refusals: dict[int | str, dict[str, Any]] = {status: REFUSALS[status] for status in (401, 503)}
    started = int(time.time())

    def card() -> ModelCard:
        info = room.lifecycle.info()
        return ModelCard(id=room.intake.model_name(info), created=started, max_model_len=info.context_length)

    @app.get("/v1/models", responses=refusals)
    async def models(request: Request) -> ModelList:
        """The one model that is served here."""
        check_key(request.scope["headers"], room.settings)
        return ModelList(data=[card()])

    @app.get("/v1/models/{name:path}", responses=refusals | {404: REFUSALS[404]})
    async def model(request: Request, name: str) -> ModelCard:
        """A model by its name."""
        check_key(request.scope["headers"], room.settings)
        if (found := card()).id != name:
            raise ApiError(404, f"There is no such model here; this server has `{found.id}`.", code="model_not_found")
        return found

    @app.get("/v1/engine", responses=refusals)
    async def engine(request: Request) -> dict[str, Any]:
        """What answers: engine, versions, model, precision, device, batching and options."""
        check_key(request.scope["headers"], room.settings)
        return dataclasses.asdict(room.lifecycle.info())


def _add_observation(app: FastAPI, lifecycle: Lifecycle, latest: _LatestStats, registry: CollectorRegistry) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """200 while the server itself lives, whatever its engine does."""
        return {"status": "ok", "engine": lifecycle.engine.name, "state": lifecycle.state}

    @app.get("/ready", responses={503: REFUSALS[503]})
    async def ready() -> dict[str, str]:
        """200 while requests are accepted, 503 with the reason otherwise."""
        lifecycle.info()
        return {"status": "ready", "engine": lifecycle.engine.name}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        """For Prometheus."""
        latest.stats = await lifecycle.engine.stats()
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), media_type=content_type)


def _json(document: object) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")
