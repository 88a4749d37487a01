"""What is applied to a server: a number of users (closed loop) or a rate of arrivals (open loop)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
MAX_LOAD = 10**9  # users, or requests per second


class Users(msgspec.Struct, frozen=True, tag_field="loop", tag="closed"):
    """A closed loop: `count` users, each of whom sends the next request after the answer to the last one."""

    count: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOAD)]
    unit: ClassVar[str] = "users"

    @property
    def value(self) -> float:
        return float(self.count)

    @property
    def label(self) -> str:
        return f"{self.count} user{'s' if self.count != 1 else ''}"


TRACE = "trace"  # arrivals at the times of a recorded trace


class Rate(msgspec.Struct, frozen=True, tag_field="loop", tag="open"):
    """An open loop: requests arrive at `per_second` on average, however long earlier answers take.

    `arrivals` names the arrival process, as in `gamma:cv=2`. `profile` says how the rate changes within the stage, as
    in `2..20` or `20x5+2x25`; it is empty where the rate is constant.
    """

    per_second: Annotated[float, msgspec.Meta(ge=0, le=MAX_LOAD)]
    arrivals: str = "poisson"
    profile: str = ""
    unit: ClassVar[str] = "req/s"

    @property
    def value(self) -> float:
        return self.per_second

    @property
    def varies(self) -> bool:
        """Whether the rate itself changes within a stage."""
        return bool(self.profile) or self.arrivals == TRACE

    @property
    def cycle(self) -> tuple[tuple[float, float], ...]:
        """`20x5+2x25` as (requests per second, seconds) of each part; empty where the rate goes in no cycle.

        Raises `ValueError` for a part that is not like that.
        """
        if "x" not in self.profile:
            return ()
        parts = [part.split("x") for part in self.profile.split("+")]
        return tuple((float(rate), float(seconds)) for rate, seconds in parts)

    def scaled(self, factor: float) -> Rate:
        """As many arrivals by `factor`, at every point of the profile."""
        if self.cycle:
            profile = "+".join(f"{rate * factor:g}x{seconds:g}" for rate, seconds in self.cycle)
        else:
            profile = "..".join(f"{float(rate) * factor:g}" for rate in filter(None, self.profile.split("..")))
        return msgspec.structs.replace(self, per_second=self.per_second * factor, profile=profile)

    @property
    def label(self) -> str:
        return f"{self.profile or f'{self.per_second:g}'} req/s"


Load = Users | Rate
"""Which of the two it is says the `loop` of the JSON object: `closed` or `open`."""


def load_of(value: float, unit: str) -> Load:
    """`value` users, or requests per second at a constant rate."""
    return Users(int(value)) if unit == Users.unit else Rate(value)
