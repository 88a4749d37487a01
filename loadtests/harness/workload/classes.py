"""Several classes of requests in one load, each with a share of the users and its own objectives.

--classes 'chat: weight=3 prompt=lognormal:200,0.6 output=100 slo=ttft_p95=0.5; batch: weight=1 prompt=4000 output=50'
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from enginebench.records.slo import parse_objectives
from enginebench.settings.schema import UserMistake
from loadtests.harness.workload.lengths import Lengths, parse_lengths

GRAMMAR = "NAME: weight=3 prompt=LENGTH output=LENGTH slo=ttft_p95=0.5,tpot_p95=0.04; NAME: …"
GOLDEN = 0.6180339887498949  # multiples of it fill the unit interval evenly: the shares hold for any number of users


@dataclass(frozen=True, slots=True)
class RequestClass:
    """A class of requests; `slo` has its objectives, separated by commas."""

    name: str
    weight: float = 1.0
    prompt_tokens: Lengths | None = None
    output_tokens: Lengths | None = None
    slo: str = ""

    def __str__(self) -> str:
        parts = [f"{self.name}: weight={self.weight:g}"]
        parts += [f"prompt={self.prompt_tokens}"] if self.prompt_tokens else []
        parts += [f"output={self.output_tokens}"] if self.output_tokens else []
        parts += [f"slo={self.slo}"] if self.slo else []
        return " ".join(parts)


def parse_classes(text: str) -> tuple[RequestClass, ...]:
    """Read classes from the text of `--classes`. Raises `UserMistake` with the grammar."""
    classes = []
    for part in filter(None, map(str.strip, text.split(";"))):
        name, colon, fields = (piece.strip() for piece in part.partition(":"))
        texts = dict(field.partition("=")[::2] for field in fields.split())
        try:
            weight = re.fullmatch(r"\d*\.?\d+", texts.get("weight", "1"))
            has_known_fields = texts.keys() <= {"weight", "prompt", "output", "slo"}
            if not (colon and re.fullmatch(r"\w+", name) and has_known_fields and weight and float(weight[0])):
                raise ValueError
            prompt, output = (parse_lengths(texts[key]) if key in texts else None for key in ("prompt", "output"))
            slo = texts.get("slo", "")
            parse_objectives([slo])
            request_class = RequestClass(name, float(weight[0]), prompt, output, slo)
        except ValueError as error:
            raise UserMistake(str(error) or f"classes are {GRAMMAR}, not `{part}`.") from None
        classes.append(request_class)
    if len({request_class.name for request_class in classes}) < len(classes):
        raise UserMistake(f"each class needs its own name: `{text}`.")
    return tuple(classes)


def write_classes(classes: Sequence[RequestClass]) -> str:
    return "; ".join(map(str, classes))


def class_of(number: int, classes: Sequence[RequestClass]) -> RequestClass:
    """Return the class of a user, or of an arrival, by its number in the run."""
    upper_bounds = list(accumulate(request_class.weight for request_class in classes))
    position = ((number + 0.5) * GOLDEN) % 1.0 * upper_bounds[-1]
    return classes[min(bisect_right(upper_bounds, position), len(classes) - 1)]
