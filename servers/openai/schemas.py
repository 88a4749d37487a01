"""Request and response bodies: OpenAI's, as far as they apply to a text model.

Types are strict: `"5"` is no number. A field that would change the answer in an unsupported way is refused, never
ignored, because a benchmark that silently drops a setting measures something else than it reports.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# Fields that are accepted at the value that means "not used", and refused at any other.
UNUSED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "top_k": (-1, 0),
    "use_beam_search": (False,),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
}
# Fields that change nothing in an answer.
IRRELEVANT = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "parallel_tool_calls",
    }
)

TokenIds = list[Annotated[int, Field(ge=0)]]


class Body(BaseModel):
    """A request body. Unknown fields are kept, so that `intake` can name them in its error."""

    model_config = ConfigDict(
        strict=True,
        extra="allow",
        allow_inf_nan=False,
        frozen=True,
        protected_namespaces=(),
        json_schema_extra={"additionalProperties": False},
    )

    model: str | None = Field(None, description="As listed by /v1/models; optional.")


class TextPart(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    type: Literal["text"]
    text: str


class Message(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart]
    name: str | None = Field(None, description="Accepted, but not shown to the model.")

    def plain(self) -> dict[str, str]:
        """In the form that chat templates expect: plain text, and `system` for OpenAI's newer `developer`."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    include_usage: bool | None = Field(None, description="Send `usage` in a separate last chunk without choices.")
    continuous_usage_stats: bool | None = Field(None, description="Send the current usage in every chunk.")
    include_obfuscation: Literal[False] | None = Field(None, description="Not supported.")


class Sampling(Body):
    """The fields that both endpoints share."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(None, description="1 by default; 0 is greedy.")
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = Field(None, description="Continue to max_tokens past the end-of-text token.")
    min_tokens: Annotated[int, Field(ge=0)] | None = Field(None, description="Fewest tokens of an answer.")
    timeout: Annotated[float, Field(gt=0)] | None = Field(None, description="Seconds for the whole answer.")


class ChatRequest(Sampling):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class CompletionRequest(Sampling):
    prompt: str | TokenIds | list[str] | list[TokenIds] = Field(description="Text or token ids of one prompt.")
    echo: bool | None = Field(None, description="Repeat the prompt before the answer.")
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None


class TokenizeRequest(Body):
    """As in vLLM: either `prompt` or `messages`."""

    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    add_special_tokens: bool | None = Field(None, description="True by default for a prompt, false for messages.")
    add_generation_prompt: bool = True


class DetokenizeRequest(Body):
    tokens: TokenIds


# Responses. These classes document them; completions are formatted by `servers.openai.wire`.


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Timing(BaseModel):
    """Seconds on the server's own clock."""

    queue: float = Field(description="From the request's arrival to its admission.")
    prefill: float = Field(description="From its admission to the first token.")
    decode: float = Field(description="From the first token to the last.")


class ChatMessageOut(BaseModel):
    role: Literal["assistant"]
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    index: int
    message: ChatMessageOut
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]


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


class TextChoice(BaseModel):
    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]


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
