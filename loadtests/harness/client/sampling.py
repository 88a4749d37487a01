"""The sampling options, declared once, and passed on as a whole from the scenario to the body of each request.

To add an option, add its field here, and its name in the dialect of each API that has it (`Dialect.fields`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import msgspec

from enginebench.settings.schema import UserMistake
from loadtests.harness.setting_groups import api_setting

SEVERAL_ANSWERS = ("n", "best_of")  # fields that ask for more than one answer to a request


def checked_object(text: str) -> str:
    """Check that the text is empty or a JSON object that asks for one answer. Raises `UserMistake`."""
    try:
        value = msgspec.json.decode(text or "{}")
    except ValueError as error:
        raise UserMistake(f"this is not JSON ({error}): `{text}`.") from None
    if not isinstance(value, dict):
        raise UserMistake(f'a JSON object is expected, such as {{"top_k": 1}}, not `{text}`.')
    for name in SEVERAL_ANSWERS:
        if value.get(name) not in (None, 1):
            raise UserMistake(
                f"`{name}` in --extra-body asks for several answers to one request, and their tokens would be measured "
                "as one answer's: leave it out, and test more users or a higher rate instead."
            )
    return text


@dataclass(frozen=True)
class Sampling:
    """Sampling options; the server decides those that are `None`."""

    ignore_eos: Literal["auto", "yes", "no"] = api_setting(
        "auto",
        "Make answers run to full length; auto: if the server supports it (ours, vLLM, SGLang, TensorRT-LLM, "
        "llama.cpp).",
    )
    extra_body: str = api_setting(
        "",
        'JSON object that is merged into each request, such as {"top_p": 0.9}; null removes a field.',
        metavar="JSON",
        read=checked_object,
    )
    temperature: float | None = api_setting(
        0.0,
        "Sampling temperature; 0 is greedy, none leaves it to the server, which some models require.",
        metavar="T",
        least=0,
    )
    logprobs: bool = False  # for each token of the answer, recorded with it

    @property
    def to_full_length(self) -> bool:
        return self.ignore_eos == "yes"

    def without(self, name: str) -> Sampling:
        """Return a copy in which the server decides the option."""
        changed: dict[str, Any] = {name: None}
        return replace(self, **changed)

    @cached_property
    def options(self) -> dict[str, Any]:
        """Return the options by name, without those that the server decides."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        options["ignore_eos"], options["logprobs"] = self.to_full_length or None, self.logprobs or None
        del options["extra_body"]  # it is merged into the whole body
        return {name: value for name, value in options.items() if value is not None}
