"""The log-probabilities that a loaded engine gives to a fixed text (`enginebench/records/quality.py`)."""

from __future__ import annotations

from enginebench.records.quality import NO_WEIGHTS, TEXT, TOP, Quality
from engines.contract.base import EngineInfo, GenerateRequest, Model, TokenLogprob
from engines.contract.errors import EngineError
from engines.process.supervisor import ChildEngine
from engines.text.detokenize import tokenizer_of


async def measure_quality(engine: ChildEngine, info: EngineInfo, model: Model | None) -> Quality:
    if model is None:
        return Quality(why="it has no model")
    if model.random_weights:
        return Quality(dtype=info.dtype, why=NO_WEIGHTS)
    if "forced" not in info.features:
        return Quality(dtype=info.dtype, why=f"{info.name} gives no log-probabilities of given tokens")
    ids = tuple(tokenizer_of(model.folder).encode(TEXT).ids)[: info.context_length - 1]
    request = GenerateRequest(*(TEXT, ids[:1], len(ids) - 1), ignore_eos=True, logprobs=TOP, forced_token_ids=ids[1:])
    tokens: list[TokenLogprob] = []
    try:
        async for chunks in engine.generate(request):
            tokens += [logprob for chunk in chunks for logprob in chunk.logprobs]
    except EngineError as error:
        return Quality(dtype=info.dtype, why=str(error).rstrip("."))
    if len(tokens) != len(ids) - 1:
        return Quality(dtype=info.dtype, why=f"it gave {len(tokens)} log-probabilities for {len(ids) - 1} tokens")
    tops = tuple({text: value for text, value, _ in token.top} for token in tokens)
    return Quality(tuple(token.token for token in tokens), tuple(token.logprob for token in tokens), tops, info.dtype)
