"""The FastAPI application and its paths. `create_app` is the entry point."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry
from starlette.responses import Response

from engines.process.replicas import ServedEngine
from servers.exposition import exposition
from servers.gpu.collector import GpuCollector
from servers.http import api_errors
from servers.http.access import check_headers, check_key, read_body
from servers.http.api_errors import ApiError
from servers.lifecycle import Lifecycle
from servers.openai.completions import PATHS, Context
from servers.openai.intake import Intake
from servers.openai.prompts import Tokenizer
from servers.prometheus_metrics import Metrics, Snapshot, registry_of
from servers.settings import ServerSettings

READING = ["GET", "HEAD"]


def create_app(engine: ServedEngine, tokenizer: Tokenizer, settings: ServerSettings) -> FastAPI:
    """Build the application around one engine.

    The engine is loaded in the app's lifespan; see `app.state.lifecycle`.
    """
    lifecycle = Lifecycle(engine, tokenizer, settings)
    metrics = Metrics(engine.name, lambda: _snapshot(lifecycle), for_a_run=settings.listener is not None)
    gpus = GpuCollector(used=lambda: engine.gpus)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        gpus.start()
        lifecycle.open()
        try:
            yield
        finally:
            await lifecycle.close()
            gpus.stop()

    # Without /openapi.json and /docs, which would lack the bodies: `servers.http.access` reads them and
    # `servers.openai.intake` validates them, because FastAPI would not limit their size and would parse them twice.
    app = FastAPI(lifespan=lifespan, openapi_url=None)
    app.state.lifecycle = lifecycle
    api_errors.install(app)
    context = Context(settings, lifecycle, Intake(tokenizer, settings), metrics)
    app.state.context = context
    _add_completions(app)
    _add_tokens(app, context)
    _add_description(app, context)
    _add_observation(app, lifecycle, metrics, registry_of([metrics, gpus]))
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


def _add_completions(app: FastAPI) -> None:
    """Refuse other methods: `CompletionPaths` answers these paths before the routes."""

    async def answered_ahead() -> None:
        raise NotImplementedError

    for path in PATHS:
        app.post(path)(answered_ahead)


def _add_tokens(app: FastAPI, context: Context) -> None:
    @app.post("/tokenize")
    async def tokenize(request: Request) -> Response:
        """Return token ids of a prompt, or of a chat as the model's template renders it."""
        info = context.lifecycle.info()
        check_headers(request.scope["headers"], context.settings)
        content = await read_body(request.receive, context.settings.max_body_bytes)
        ids = await context.intake.tokens(content, info)
        document = {"count": len(ids), "max_model_len": info.context_length, "tokens": ids}
        return Response(msgspec.json.encode(document), media_type="application/json")


def _add_description(app: FastAPI, context: Context) -> None:
    started = int(time.time())

    def card() -> dict[str, Any]:
        info = context.lifecycle.info()
        return {
            "id": info.model,
            "object": "model",
            "created": started,
            "owned_by": "enginebench",
            "max_model_len": info.context_length,
        }

    @app.api_route("/v1/models/", methods=READING, include_in_schema=False)
    @app.api_route("/v1/models", methods=READING)
    async def list_models(request: Request) -> dict[str, Any]:
        """List the model that this server serves."""
        check_key(request.scope["headers"], context.settings)
        return {"object": "list", "data": [card()]}

    @app.api_route("/v1/models/{name:path}", methods=READING)
    async def get_model(request: Request, name: str) -> dict[str, Any]:
        """Return a model by its name."""
        check_key(request.scope["headers"], context.settings)
        if (model_card := card())["id"] != name:
            raise ApiError(
                404, f"This server has no model of that name; it serves `{model_card['id']}`.", code="model_not_found"
            )
        return model_card

    @app.api_route("/v1/engine", methods=READING)
    async def describe_engine(request: Request) -> dict[str, Any]:
        """Return the engine's versions, model, number format, device, batching and options."""
        check_key(request.scope["headers"], context.settings)
        return dataclasses.asdict(context.lifecycle.info())


def _add_observation(app: FastAPI, lifecycle: Lifecycle, metrics: Metrics, registry: CollectorRegistry) -> None:
    @app.api_route("/health", methods=READING)
    async def health() -> dict[str, str]:
        """Answer 200 while the server process runs, in every state of its engine."""
        return {"status": "ok", "engine": lifecycle.engine.name, "state": lifecycle.state}

    @app.api_route("/ready", methods=READING)
    async def ready() -> dict[str, str]:
        """Answer 200 while requests are accepted, 503 with the reason otherwise."""
        lifecycle.info()
        return {"status": "ready", "engine": lifecycle.engine.name}

    @app.api_route("/metrics", methods=READING)
    async def scrape(request: Request) -> Response:
        """Return metrics in Prometheus' text format."""
        metrics.engine_stats = await lifecycle.engine.stats()
        page, content_type = await exposition(registry, request.headers.get("accept", ""))
        return Response(page, media_type=content_type)
