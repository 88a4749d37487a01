"""Prompts of a trace: of the recorded lengths, with the shared prefixes that were recorded.

They are random words, unless the trace has texts.
"""

from __future__ import annotations

from random import Random

from loadtests.harness.client.dialects.dialect import Message
from loadtests.harness.schedule.trace import Trace, TraceRequest
from loadtests.harness.workload.workload import PlannedRequest, Prompt, Workload


def trace_request(workload: Workload, trace: Trace, stage: int, number: int) -> PlannedRequest:
    """The request of arrival `number`; a trace that is asked for more than it has begins again with other words."""
    request = trace.requests[number % len(trace.requests)]
    rng = Random(f"trace {workload.seed}/{workload.prompt_set}/{stage}/{number}")
    prompt = _prompt(workload, trace, request, rng)
    return workload.request(
        prompt,
        request.output_tokens,
        rng.getrandbits(31),
        prompt_tokens=request.prompt_tokens,
        session=request.session,
    )


def _prompt(workload: Workload, trace: Trace, request: TraceRequest, rng: Random) -> Prompt:
    if request.messages:
        return tuple(Message(role, text) for role, text in request.messages)  # type: ignore[arg-type]
    tokens = request.prompt_tokens
    assert tokens is not None, "a request has texts or a length"
    material = workload.material
    if material.kind == "ids":
        return material.token_ids(tokens, rng)
    if not request.blocks:
        return material.prompt(tokens, rng)
    whole = f"{workload.seed}/{workload.prompt_set}"
    blocks = [(Random(f"block {whole}/{name}"), trace.block_tokens) for name in request.blocks]
    return material.of_blocks(tokens, blocks)
