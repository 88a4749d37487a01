"""The requests of users: unique prompts of a planned length, conversations, or the contents of a file.

A server with a prefix cache does not compute a known prompt again, so every prompt starts with unique words, which
differ between runs; `--shared-prefix-tokens` and `--seed` do the opposite. Each user has its own random stream, so the
same seed gives the same requests with one process or eight.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any

import msgspec

from enginebench.records.request import RequestRecord
from loadtests.harness.client.call import Call
from loadtests.harness.client.dialects.dialect import GREEDY, Message, ModelRequest
from loadtests.harness.client.dialects.endpoints import DIALECTS, Endpoint
from loadtests.harness.client.sampling import Sampling
from loadtests.harness.schedule.trace import Trace, TraceRequest
from loadtests.harness.workload.classes import RequestClass, class_of
from loadtests.harness.workload.conversation import Conversation
from loadtests.harness.workload.datasets import DatasetRows
from loadtests.harness.workload.lengths import Lengths, parse_lengths
from loadtests.harness.workload.prompt_source import PromptSource

ID_BYTES = 8
ONE_TURN = Lengths("fixed", 1)
Prompt = str | tuple[Message, ...] | tuple[int, ...]


def prompt_id(prompt: Prompt, fields: Mapping[str, Any] = {}) -> str:
    """Return an id that is equal for equal prompts and `fields` of the body."""
    if isinstance(prompt, str):
        data = prompt.encode("utf-8", "replace")
    elif prompt and isinstance(prompt[0], int):
        data = array("q", prompt).tobytes()
    else:
        data = "\0".join(part.text for part in prompt if isinstance(part, Message)).encode("utf-8", "replace")
    data += msgspec.json.encode(fields) if fields else b""
    return blake2b(data, digest_size=ID_BYTES).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Everything that determines the requests, except the rows of a dataset.

    Lengths come from `seed`; the words of the prompts from `seed` and `prompt_set` together. `context` is the
    maximum of prompt and answer tokens together, if the server reports it.
    """

    model: str
    endpoint: Endpoint
    streamed: bool
    prompt_tokens: Lengths
    output_tokens: Lengths
    source: PromptSource
    seed: int
    prompt_set: str
    shared_prefix_tokens: int = 0
    sampling: Sampling = GREEDY
    max_tokens_field: str = "max_tokens"
    stream_usage: bool = True
    classes: tuple[RequestClass, ...] = ()
    turns: Lengths = ONE_TURN
    turn_tokens: Lengths | None = None
    context: int | None = None
    keep_answers: bool = False

    def rows_of(self, dataset: Trace | None, process: int = 0, processes: int = 1) -> DatasetRows | None:
        """Return the rows of the dataset that this process sends; `None` without a dataset."""
        return None if dataset is None else DatasetRows(dataset.requests, self.set_name, process, processes)

    def requests_of(self, user: int, rows: DatasetRows | None = None) -> UserRequests:
        """Return one user's requests. `user` is its number in the whole run, `rows` are its process's."""
        return UserRequests(self, user, rows)

    @property
    def set_name(self) -> str:
        return f"{self.seed}/{self.prompt_set}"

    def recorded_prompt(self, request: TraceRequest, rng: Random) -> Prompt:
        """Return the texts of a recorded request, or words of its length with the prefixes that it shared."""
        if request.messages or request.prompt_tokens is None:
            return tuple(Message(role, text) for role, text in request.messages)  # type: ignore[arg-type]
        if not request.blocks:
            ids = self.source.kind == "ids"
            return (self.source.token_ids if ids else self.source.prompt)(request.prompt_tokens, rng)
        blocks = [f"{self.set_name}/{name}" for name in request.blocks]
        return self.source.of_blocks(request.prompt_tokens, blocks, request.block_tokens, rng)

    def arrival_request(self, trace: Trace, stage: int, number: int, index: int) -> Call:
        """Build request `index` of arrival `number`. After its last arrival, a trace begins again with other words."""
        arrival = trace.arrivals[number % len(trace.arrivals)]
        request = arrival.requests[index]
        rng = Random(f"trace {self.set_name}/{stage}/{number}/{index}")
        return self.request(
            self.recorded_prompt(request, rng),
            request.output_tokens or self.output_tokens.draw(rng),
            rng.getrandbits(31),
            fields=request.fields,
            prompt_tokens=request.prompt_tokens,
            expected=request.expected,
            session=request.session,
            turn=index if len(arrival.requests) > 1 else None,
        )

    def request(
        self,
        prompt: Prompt,
        output_tokens: int,
        seed: int,
        *,
        fields: Mapping[str, Any] = {},
        prompt_tokens: int | None = None,
        expected: str | None = None,
        **facts: Any,
    ) -> Call:
        """Build a request for at most `output_tokens`, with `fields` in its body. `prompt_tokens` is the planned length
        of the prompt, `expected` its exact answer; `facts` are further fields of the record. Raises `UserMistake` if
        the API does not accept such a prompt."""
        dialect = DIALECTS[self.endpoint]
        request = ModelRequest(
            model=self.model,
            prompt=(Message("user", prompt),) if isinstance(prompt, str) else prompt,
            max_tokens=output_tokens,
            streamed=self.streamed,
            sampling=self.sampling,
            seed=seed,
            fields=fields,
            max_tokens_field=self.max_tokens_field,
            stream_usage=self.stream_usage,
        )
        record = RequestRecord.planned(
            planned_prompt_tokens=prompt_tokens,
            planned_output_tokens=output_tokens,
            prompt_id=prompt_id(prompt, fields),
            streamed=self.streamed,
            **facts,
        )
        request_path, body = dialect.path(request), dialect.written(request)
        return Call(request_path, body, self.streamed, dialect, self.keep_answers, expected, record)


class UserRequests:
    """The requests of one user, without end."""

    def __init__(self, workload: Workload, user: int, rows: DatasetRows | None) -> None:
        self._workload, self._user, self._rows = workload, user, rows
        self._row: TraceRequest | None = None
        self._set = workload.set_name
        self._lengths = Random(f"lengths {workload.seed}/{user}")
        self._words = Random(f"words {self._set}/{user}")
        self._conversation: Conversation | None = None
        self._conversations = 0

    @property
    def independent(self) -> bool:
        """Return whether the next request can be built before the last one has its answer."""
        return self._rows is None and not self._in_conversations

    @property
    def _in_conversations(self) -> bool:
        return self._workload.turns.a > 1 or self._workload.turns.kind != "fixed"

    def next(self, asks: Mapping[str, str]) -> Call:
        """Build the next request. `asks` are the settings of the stage, as in `StagePlan.asks`."""
        if self._rows is not None:
            return self._from_dataset(self._rows)
        if self._in_conversations:
            return self._of_conversation(asks)
        class_name, prompt_tokens, output_tokens = self._plan(asks)
        return self._call(self._prompt(prompt_tokens, asks), prompt_tokens, output_tokens, request_class=class_name)

    def answered(self, ended: RequestRecord, text: str) -> None:
        """Continue the conversation of the request that has ended with `text`, or end it."""
        self._row = None
        if self._conversation is not None and not self._conversation.answered(ended, text):
            self._conversation = None

    def close(self) -> None:
        """Give back the row that this user has taken and not sent."""
        if self._rows is not None and self._row is not None:
            self._rows.give_back(self._row)
            self._row = None

    def _plan(self, asks: Mapping[str, str]) -> tuple[str | None, int, int]:
        """Draw the class, if there are classes, and the lengths of prompt and answer."""
        workload = self._workload
        prompt, output, name = workload.prompt_tokens, workload.output_tokens, None
        if workload.classes:
            own = class_of(self._user, workload.classes)
            prompt, output, name = own.prompt_tokens or prompt, own.output_tokens or output, own.name
        return name, self._length(asks.get("prompt_tokens"), prompt), self._length(asks.get("output_tokens"), output)

    def _length(self, here: str | None, otherwise: Lengths) -> int:
        return (otherwise if here is None else parse_lengths(here)).draw(self._lengths)

    def _prompt(self, tokens: int, asks: Mapping[str, str]) -> str | tuple[int, ...]:
        workload = self._workload
        if workload.source.kind == "ids":
            return workload.source.token_ids(tokens, self._words)
        shared = int(asks.get("shared_prefix_tokens", workload.shared_prefix_tokens))
        return workload.source.prompt(tokens, self._words, shared, self._set)

    def _from_dataset(self, rows: DatasetRows) -> Call:
        row = self._row = self._row or rows.take()  # the same row if the request is built again for another stage
        output_tokens = row.output_tokens or self._workload.output_tokens.draw(self._lengths)
        prompt = self._workload.recorded_prompt(row, self._words)
        return self._call(
            prompt, row.prompt_tokens, output_tokens, fields=row.fields, session=row.session, expected=row.expected
        )

    def _of_conversation(self, asks: Mapping[str, str]) -> Call:
        workload = self._workload
        class_name, prompt_tokens, output_tokens = self._plan(asks)
        if self._conversation is not None and self._conversation.is_waiting:
            self._conversation = None  # the request is built again for another stage
        if self._conversation is not None:
            length = workload.turn_tokens.draw(self._lengths) if workload.turn_tokens else prompt_tokens
            if self._conversation.has_room_for(length + output_tokens, workload.context):
                self._conversation.ask(workload.source.message(length, self._words))
            else:
                self._conversation = None
        tokens = None  # unknown for a later turn, because they depend on the answers before it
        if self._conversation is None:
            prompt, tokens = self._prompt(prompt_tokens, asks), prompt_tokens
            self._conversation = Conversation(f"{self._user}-{self._conversations}", workload.turns.draw(self._lengths))
            self._conversation.ask(str(prompt))
            self._conversations += 1
        conversation = self._conversation
        facts = {"session": conversation.name, "turn": conversation.turn, "request_class": class_name}
        return self._call(conversation.messages, tokens, output_tokens, **facts)

    def _call(self, prompt: Prompt, prompt_tokens: int | None, output_tokens: int, **facts: Any) -> Call:
        seed = self._words.getrandbits(31)
        return self._workload.request(prompt, output_tokens, seed, prompt_tokens=prompt_tokens, **facts)
