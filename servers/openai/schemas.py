"""The documents that clients get, described for the OpenAPI document; `servers.openai.wire` writes completions."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class PromptTokensDetails(BaseModel):
    cached_tokens: int = Field(description="Taken from the engine's prefix cache.")


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = Field(None, description="Where the engine reports it.")


class Timing(BaseModel):
    """Seconds on the server's own clock; the engine's own figures where it reports them."""

    queue: float = Field(description="From the request's arrival to its admission.")
    prefill: float = Field(description="From its admission to the first token.")
    decode: float = Field(description="From the first token to the last.")
    engine_queue: float | None = Field(None, description="In the engine's own queue.")
    engine_first_token: float | None = Field(None, description="From the engine's receipt to its first token.")


class ChatMessageOut(BaseModel):
    role: Literal["assistant"]
    content: str
    refusal: None = None


class Choice(BaseModel):
    index: int
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length", "content_filter"]


class ChatChoice(Choice):
    message: ChatMessageOut


class Answered(BaseModel):
    id: str
    created: int
    model: str
    system_fingerprint: str
    usage: Usage
    timing: Timing


class ChatCompletion(Answered):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class TextChoice(Choice):
    text: str


class Completion(Answered):
    object: Literal["text_completion"]
    choices: list[TextChoice]


class ModelCard(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "enginebench"
    max_model_len: int


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class Tokenized(BaseModel):
    count: int
    max_model_len: int
    tokens: list[int]


class Detokenized(BaseModel):
    prompt: str


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorDocument(BaseModel):
    error: ErrorBody
