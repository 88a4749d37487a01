"""Prompts of a trace: of the recorded lengths, with the shared prefixes that were recorded.

They are random words, unless the trace has texts.
"""

from __future__ import annotations

from random import Random

from loadtests.harness.client.dialects.dialect import Message
from loadtests.harness.schedule.trace import Trace, TraceRequest
from loadtests.harness.workload.workload import PlannedRequest, Prompt, Workload


def trace_request(workload: Workload, trace: Trace, stage: int, number: int, index: int) -> PlannedRequest:
    """Request `index` of arrival `number`; a trace that is asked for more than it has begins again with other words."""
    arrival = trace.arrivals[number % len(trace.arrivals)]
    request = arrival.requests[index]
    rng = Random(f"trace {workload.set_name}/{stage}/{number}/{index}")
    prompt = _prompt(workload, request, rng)
    return workload.request(
        prompt,
        request.output_tokens,
        rng.getrandbits(31),
        prompt_tokens=request.prompt_tokens,
        session=request.session,
        turn=index if len(arrival.requests) > 1 else None,
    )


def _prompt(workload: Workload, request: TraceRequest, rng: Random) -> Prompt:
    if request.messages:
        return tuple(Message(role, text) for role, text in request.messages)  # type: ignore[arg-type]
    tokens = request.prompt_tokens
    assert tokens is not None, "a request has texts or a length"
    source = workload.source
    if not request.blocks:
        return source.prompt(tokens, rng)
    blocks = [f"{workload.set_name}/{request.scope}/{name}" for name in request.blocks]
    return source.of_blocks(tokens, blocks, request.block_tokens, rng)
