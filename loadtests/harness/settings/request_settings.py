"""Settings of the requests: lengths, prompts, conversations, and the API."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial

from enginebench.settings.schema import UserMistake, whole_numbers, write_list
from loadtests.harness.client.dialects.endpoints import DIALECTS, Endpoint
from loadtests.harness.client.sampling import Sampling
from loadtests.harness.setting_groups import api_setting, most_used, prompt_setting
from loadtests.harness.workload.classes import GRAMMAR as CLASSES_GRAMMAR
from loadtests.harness.workload.classes import RequestClass, parse_classes, write_classes
from loadtests.harness.workload.datasets import dataset_path
from loadtests.harness.workload.distributions import LENGTH_GRAMMAR
from loadtests.harness.workload.lengths import Lengths, parse_lengths, parse_several
from loadtests.harness.workload.prompt_words import Kind

lengths_setting = partial(most_used, metavar="N", read=parse_several, write=write_list)


def parse_prefixes(text: str) -> tuple[int, ...]:
    """Read the lengths of shared prefixes. Raises `UserMistake`."""
    try:
        numbers = tuple(whole_numbers(text))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 0:
        raise UserMistake(f"a shared prefix is a number of tokens, or several, such as 0,512, not `{text}`.")
    return numbers


@dataclass(frozen=True)
class RequestSettings(Sampling):
    prompt_tokens: tuple[Lengths, ...] = lengths_setting(
        parse_several("uniform:64-192"),
        f"Prompt length in tokens: {LENGTH_GRAMMAR}; several, such as 10,50,100, make one stage each.",
    )
    prompt_kind: Kind = prompt_setting(
        "words", "What prompts are made of: words, or token ids (--endpoint completions)."
    )
    shared_prefix_tokens: tuple[int, ...] = prompt_setting(
        (0,),
        "Tokens at the start of every prompt that are the same for all; several, such as 0,512, make one stage each.",
        metavar="N",
        read=parse_prefixes,
        write=write_list,
    )
    output_tokens: tuple[Lengths, ...] = lengths_setting(
        parse_several("uniform:32-96"), "Maximum length of an answer in tokens; same syntax as --prompt-tokens."
    )
    dataset: str = prompt_setting(
        "",
        "JSONL, JSON, CSV or Parquet file of requests: prompt, messages or prompt_tokens, and optionally "
        "output_tokens; or what --trace reads, such as ShareGPT's conversations or the folder of a run, without its "
        "times. hf:OWNER/NAME[:CONFIG[:SPLIT]] is a dataset on Hugging Face, graded is 200 questions with exact "
        "answers.",
        metavar="PATH|hf:NAME|graded",
        read=dataset_path,
        on_page=False,
    )
    classes: tuple[RequestClass, ...] = prompt_setting(
        (),
        f"Request classes, each with a share of the users: {CLASSES_GRAMMAR}.",
        metavar="CLASSES",
        read=parse_classes,
        write=write_classes,
    )
    turns: Lengths = prompt_setting(
        Lengths("fixed", 1),
        "Requests per conversation; each sends the whole history, including the real answers.",
        metavar="N",
        read=parse_lengths,
        write=str,
    )
    turn_tokens: Lengths | None = prompt_setting(
        None,
        "Tokens that each turn after the first adds to its conversation. Default: same as --prompt-tokens.",
        metavar="N",
        read=parse_lengths,
        write=str,
    )
    for_context: int | None = None  # lengths are scaled down for a server with a shorter context
    endpoint: Endpoint = api_setting(
        "chat", "API to use: OpenAI's three, Anthropic's Messages, Amazon Bedrock's Converse."
    )
    no_stream: bool = api_setting(False, "Request whole answers instead of streams, without TTFT.")
    seed: int = prompt_setting(
        0,
        "Seed of lengths and arrivals. Any value but 0 also fixes the prompts: every run with that seed sends the same "
        "ones, which a prefix cache may hold.",
        metavar="N",
        least=-(2**63),
        most=2**63 - 1,
    )
    quality: bool = api_setting(
        False,
        "Record the text of each answer, so that reports say where answers differ, and ask for log-probabilities: of "
        "each answer's tokens if the server gives them, and of a fixed text before the load, for perplexity and the "
        "largest difference between engines in `compare`.",
    )
    request_timeout: float = api_setting(600.0, "Time after which a request times out.", metavar="S", least=0.1)

    @property
    def sampling(self) -> Sampling:
        """Return the sampling options that this API accepts."""
        asked = Sampling(**{field.name: getattr(self, field.name) for field in fields(Sampling)})
        logprobs = self.quality and DIALECTS[self.endpoint].takes("logprobs")
        return replace(asked, logprobs=logprobs)
