"""The FastAPI application: its paths and their documentation. `create_app` is the entry point."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry
from starlette.responses import PlainTextResponse, Response

from engines.process.replicas import ServedEngine
from servers.exposition import exposition
from servers.gpu.collector import GpuCollector
from servers.http import errors
from servers.http.access import check_key, read_body
from servers.http.errors import ApiError
from servers.lifecycle import Lifecycle
from servers.metrics import Metrics, Snapshot, own_version, registry_of
from servers.openai.completions import Context
from servers.openai.intake import Intake
from servers.openai.openapi import OpenApiDocument, takes
from servers.openai.prompts import Tokenizer
from servers.openai.requests import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from servers.openai.schemas import (
    ChatCompletion,
    Completion,
    Detokenized,
    ErrorDocument,
    ModelCard,
    ModelList,
    Tokenized,
)
from servers.settings import ServerSettings

REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorDocument, "description": "The request is invalid, or uses a feature that is not supported."},
    401: {"model": ErrorDocument, "description": "No valid API key."},
    404: {"model": ErrorDocument, "description": "No such model."},
    408: {"model": ErrorDocument, "description": "The body took too long to arrive."},
    413: {"model": ErrorDocument, "description": "The body is too large."},
    415: {"model": ErrorDocument, "description": "The body is not `application/json`."},
    503: {"model": ErrorDocument, "description": "The engine is loading, restarting or stopping."},
}
FAILURES: dict[int | str, dict[str, Any]] = {
    429: {"model": ErrorDocument, "description": "The queue is full; `Retry-After` estimates the wait."},
    500: {"model": ErrorDocument, "description": "The engine failed."},
    504: {"model": ErrorDocument, "description": "The answer took longer than the request allows."},
}
EVENT = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
STREAM = {
    "content": {"text/event-stream": {"itemSchema": EVENT}},
    "description": "The answer; with `stream`, server-sent events of JSON, the last of which is `[DONE]`.",
}


def create_app(engine: ServedEngine, tokenizer: Tokenizer, settings: ServerSettings) -> FastAPI:
    """The application around one engine. The engine is loaded in the app's lifespan; see `app.state.lifecycle`."""
    lifecycle = Lifecycle(engine, tokenizer, settings)
    metrics = Metrics(engine.name, lambda: _snapshot(lifecycle))
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
    context = Context(settings, lifecycle, Intake(tokenizer, settings), metrics)
    app.state.context = context
    _document_generation(app)
    _add_tokens(app, context)
    _add_description(app, context)
    _add_observation(app, lifecycle, metrics, registry_of([metrics, gpus]))
    document = OpenApiDocument(app, settings, tokenizer.vocab_size)
    app.openapi = lambda: document(engine.info)  # type: ignore[method-assign]
    return app


def _snapshot(lifecycle: Lifecycle) -> Snapshot:
    return Snapshot(
        running=lifecycle.admission.running,
        waiting=lifecycle.admission.waiting,
        ready=lifecycle.state == "ready",
        restarts=lifecycle.engine.restarts,
        replicas=lifecycle.engine.replicas_ready,
        info=lifecycle.engine.info,
    )


def _document_generation(app: FastAPI) -> None:
    """`CompletionPaths` answers these."""

    @app.post(
        "/v1/chat/completions",
        response_model=ChatCompletion,
        responses=REFUSALS | FAILURES | {200: STREAM},
        openapi_extra=takes(ChatRequest),
    )
    async def chat_completions() -> Response:
        """Reply to a chat, as server-sent events where `stream` is true."""
        raise NotImplementedError

    @app.post(
        "/v1/completions",
        response_model=Completion,
        responses=REFUSALS | FAILURES | {200: STREAM},
        openapi_extra=takes(CompletionRequest),
    )
    async def completions() -> Response:
        """Complete a prompt, as server-sent events where `stream` is true."""
        raise NotImplementedError


def _add_tokens(app: FastAPI, context: Context) -> None:
    @app.post("/tokenize", response_model=Tokenized, responses=REFUSALS, openapi_extra=takes(TokenizeRequest))
    async def tokenize(request: Request) -> Response:
        """Token ids of a prompt, or of a chat as the model's template renders it."""
        info = context.lifecycle.info()
        content = await read_body(request.scope, request.receive, context.settings)
        ids = await context.intake.tokens(content, info)
        return _json({"count": len(ids), "max_model_len": info.context_length, "tokens": ids})

    @app.post("/detokenize", response_model=Detokenized, responses=REFUSALS, openapi_extra=takes(DetokenizeRequest))
    async def detokenize(request: Request) -> Response:
        """The text of token ids."""
        info = context.lifecycle.info()
        content = await read_body(request.scope, request.receive, context.settings)
        return _json({"prompt": await context.intake.text(content, info)})


def _add_description(app: FastAPI, context: Context) -> None:
    refusals: dict[int | str, dict[str, Any]] = {status: REFUSALS[status] for status in (401, 503)}
    started = int(time.time())

    def card() -> ModelCard:
        info = context.lifecycle.info()
        return ModelCard(id=context.intake.model_name(info), created=started, max_model_len=info.context_length)

    @app.get("/v1/models", responses=refusals)
    async def list_models(request: Request) -> ModelList:
        """The model that this server serves."""
        check_key(request.scope["headers"], context.settings)
        return ModelList(data=[card()])

    @app.get("/v1/models/{name:path}", responses=refusals | {404: REFUSALS[404]})
    async def get_model(request: Request, name: str) -> ModelCard:
        """A model by its name."""
        check_key(request.scope["headers"], context.settings)
        if (found := card()).id != name:
            raise ApiError(
                404, f"This server has no model of that name; it serves `{found.id}`.", code="model_not_found"
            )
        return found

    @app.get("/v1/engine", responses=refusals)
    async def describe_engine(request: Request) -> dict[str, Any]:
        """The engine: versions, model, number format, device, batching and options."""
        check_key(request.scope["headers"], context.settings)
        return dataclasses.asdict(context.lifecycle.info())


def _add_observation(app: FastAPI, lifecycle: Lifecycle, metrics: Metrics, registry: CollectorRegistry) -> None:
    @app.get("/health")
    async def health() -> dict[str, str]:
        """200 while the server process runs, in every state of its engine."""
        return {"status": "ok", "engine": lifecycle.engine.name, "state": lifecycle.state}

    @app.get("/ready", responses={503: REFUSALS[503]})
    async def ready() -> dict[str, str]:
        """200 while requests are accepted, 503 with the reason otherwise."""
        lifecycle.info()
        return {"status": "ready", "engine": lifecycle.engine.name}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def scrape(request: Request) -> Response:
        """Metrics in Prometheus' text format."""
        metrics.engine_stats = await lifecycle.engine.stats()
        page, content_type = await exposition(registry, request.headers.get("accept", ""))
        return Response(page, media_type=content_type)


def _json(document: object) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")
