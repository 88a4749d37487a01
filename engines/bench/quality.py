"""The log-probabilities that a loaded engine gives to a fixed text (`enginebench/records/quality.py`)."""

from __future__ import annotations

from enginebench.records.quality import NO_WEIGHTS, TEXT, TOP, Quality
from engines.contract.base import EngineInfo, GenerateRequest, Model, TokenLogprob
from engines.contract.errors import EngineError
from engines.process.child import ChildEngine
from engines.text.detokenize import tokenizer_of


async def quality_of(engine: ChildEngine, info: EngineInfo, model: Model | None) -> Quality:
    if model is None:
        return Quality(why="it has no model")
    if model.random_weights:
        return Quality(dtype=info.dtype, why=NO_WEIGHTS)
    if "forced" not in info.features:
        return Quality(dtype=info.dtype, why=f"{info.name} gives no log-probabilities of given tokens")
    ids = tuple(tokenizer_of(model.folder).encode(TEXT).ids)[: info.context_length - 1]
    request = GenerateRequest(*(TEXT, ids[:1], len(ids) - 1), ignore_eos=True, logprobs=TOP, forced_token_ids=ids[1:])
    found: list[TokenLogprob] = []
    try:
        async for chunks in engine.generate(request):
            found += [one for chunk in chunks for one in chunk.logprobs]
    except EngineError as error:
        return Quality(dtype=info.dtype, why=str(error).rstrip("."))
    if len(found) != len(ids) - 1:
        return Quality(dtype=info.dtype, why=f"it gave {len(found)} log-probabilities for {len(ids) - 1} tokens")
    tops = tuple({token: value for token, value, _ in one.top} for one in found)
    return Quality(tuple(one.token for one in found), tuple(one.logprob for one in found), tops, info.dtype)
