"""The workload of a run: the scenario's requests, fitted to the server."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from enginebench.records.stage import StagePlan
from enginebench.settings.schema import UserMistake
from loadtests.harness.client.dialects.dialect import Message, ModelRequest
from loadtests.harness.client.dialects.endpoints import DIALECTS
from loadtests.harness.run.model_prompts import prompt_source_for
from loadtests.harness.run.target import Target, Trial
from loadtests.harness.scenario import Scenario
from loadtests.harness.settings.run_settings import RunSettings
from loadtests.harness.workload.lengths import Lengths, parse_lengths
from loadtests.harness.workload.prompt_words import START
from loadtests.harness.workload.workload import Workload

logger = logging.getLogger(__name__)

TRIAL_TOKENS = 16  # the minimum of OpenAI's Responses API


IGNORE_EOS = {"vllm", "sglang", "tensorrt_llm", "llamacpp"}
"""Servers that take `ignore_eos`, by the owner of their models in `/v1/models`, as in their source code: `ModelCard` in
vllm/entrypoints/openai/engine/protocol.py, sglang/srt/entrypoints/openai/protocol.py and
tensorrt_llm/serve/openai_protocol.py, and llama.cpp's tools/server/server-context.cpp."""


def fitted(target: Target, scenario: Scenario, settings: RunSettings) -> tuple[Workload, Mapping[str, Any] | None]:
    """Return the workload without its prompt set, and the facts of the server's engine. Raises `UserMistake`."""
    dialect = DIALECTS[scenario.endpoint]
    model = target.model(settings.model, dialect)
    engine = target.engine()
    features = (engine or {}).get("features") or ()
    sampling = scenario.sampling
    if sampling.ignore_eos == "auto":
        takes_it = "ignore_eos" in features or (
            engine is None and dialect.takes("ignore_eos") and target.owner(model) in IGNORE_EOS
        )
        sampling = replace(sampling, ignore_eos="yes" if takes_it else "no")
    if engine is not None and sampling.logprobs and "logprobs" not in features:
        logger.info("The engine gives no log-probabilities: answers are compared by their text alone.")
        sampling = sampling.without("logprobs")
    example = ModelRequest(model, (), TRIAL_TOKENS, streamed=not scenario.no_stream, sampling=sampling)
    trials: list[Trial] = []

    def tried(text: str) -> int | None:
        """Send the first text only, and return its tokens for every text: each is the start of our prompts."""
        if not trials:
            request = replace(example, prompt=(Message("user", text),))
            trials.append(target.try_out(request, dialect))
        return trials[0].prompt_tokens

    if engine is None:  # our servers take all fields
        tried(START)
    source = prompt_source_for(target, model, scenario.endpoint, scenario.prompt_kind, settings.tokenizer, tried)
    if trials and trials[0].uncounted:
        _check_search(scenario)
    accepted = trials[0].request if trials else example
    sampling = accepted.sampling
    if scenario.ignore_eos == "auto" and trials and trials[0].is_short:
        logger.info("The server ignores `ignore_eos`: answers may be shorter than planned.")
        sampling = replace(sampling, ignore_eos="no")
    context = _context(engine, target, model)
    factor = 1.0  # lengths are scaled down by it for this server
    if scenario.for_context is not None and context is not None:
        factor = min(1.0, context / scenario.for_context)
    workload = Workload(
        model=model,
        endpoint=scenario.endpoint,
        streamed=not scenario.no_stream,
        prompt_tokens=scenario.prompt_tokens[0].scaled(factor),
        output_tokens=scenario.output_tokens[0].scaled(factor),
        source=source,
        seed=scenario.seed,
        prompt_set="",
        shared_prefix_tokens=scenario.shared_prefix_tokens[0],
        sampling=sampling,
        max_tokens_field=accepted.max_tokens_field,
        stream_usage=accepted.stream_usage,
        classes=scenario.classes,
        turns=scenario.turns,
        turn_tokens=scenario.turn_tokens.scaled(factor) if scenario.turn_tokens else None,
        context=context,
        keep_answers=scenario.quality,
    )
    return workload, engine


def _check_search(scenario: Scenario) -> None:
    """Raise `UserMistake` for a search that needs token counts if the server's answers have none."""
    search = scenario.search_plan()
    for objective in search.objectives if search is not None else ():
        if objective.judged is not None and objective.judged.needs is not None:
            raise UserMistake(
                f"{objective.name} cannot be judged by a search: the server's answers have no token counts. Search by "
                "ttft, e2e or failures, or test fixed --stages and name the model's --tokenizer."
            )


def _context(engine: Mapping[str, Any] | None, target: Target, model: str) -> int | None:
    context = (engine or {}).get("context_length")
    context = context or target.tokenized({"model": model, "prompt": "a"}).get("max_model_len")
    return context if isinstance(context, int) and context > 0 else None


def within_context(stages: tuple[StagePlan, ...], scenario: Scenario, context: int | None) -> tuple[StagePlan, ...]:
    """Return the stages whose fixed lengths fit into the server's context. Raises `UserMistake` if there are none."""
    if context is None:
        return stages
    possible = tuple(stage for stage in stages if _least_tokens(stage, scenario) <= context)
    if not possible:
        raise UserMistake(f"the server's context of {context} tokens is too short for every stage: make them shorter.")
    for stage in stages:
        if stage not in possible:
            logger.warning("Left out: %s do not fit into the server's context of %d tokens.", stage.label, context)
    return possible


def _least_tokens(stage: StagePlan, scenario: Scenario) -> int:
    """Return the minimum tokens of prompt and answer; 0 if the stage does not set the length of prompts."""

    def fixed(setting: str, otherwise: Lengths) -> int:
        lengths = parse_lengths(stage.asks[setting]) if setting in stage.asks else otherwise
        return int(lengths.a) if lengths.kind == "fixed" else 1

    if "prompt_tokens" not in stage.asks:
        return 0
    return fixed("prompt_tokens", scenario.prompt_tokens[0]) + fixed("output_tokens", scenario.output_tokens[0])
