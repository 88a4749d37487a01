"""The load on a server: a number of users (closed loop) or a rate of arrivals (open loop)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
MAX_LOAD = 10**9  # users, or requests per second
RequestRate = Annotated[float, msgspec.Meta(ge=0, le=MAX_LOAD)]  # per second


class Users(msgspec.Struct, frozen=True, tag_field="loop", tag="closed"):
    """A closed loop: `count` users, each sending the next request after the answer to the previous one."""

    count: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOAD)]
    unit: ClassVar[str] = "users"

    @property
    def value(self) -> float:
        return float(self.count)

    @property
    def label(self) -> str:
        return f"{self.count} user{'s' if self.count != 1 else ''}"


TRACE = "trace"  # arrivals at the times of a recorded trace


class Segment(msgspec.Struct, frozen=True, tag_field="part", tag="segment"):
    """A rate that changes linearly from `first` to `last` requests per second, over the whole window if `seconds` is
    `None`."""

    first: RequestRate
    last: RequestRate
    seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None

    def __str__(self) -> str:
        rate = f"{self.first:g}" if self.first == self.last else f"{self.first:g}..{self.last:g}"
        return rate if self.seconds is None else f"{rate}x{self.seconds:g}"


class Burst(msgspec.Struct, frozen=True, tag_field="part", tag="burst"):
    """Requests that arrive at the same instant."""

    requests: Annotated[int, msgspec.Meta(ge=1, le=MAX_LOAD)]

    def __str__(self) -> str:
        return f"burst{self.requests}"


Profile = tuple[Segment | Burst, ...]
"""How a rate changes within a stage: consecutive parts that are repeated, or one segment over the whole window."""


class Rate(msgspec.Struct, frozen=True, tag_field="loop", tag="open"):
    """An open loop: requests arrive at `per_second` on average, however long earlier answers take.

    `arrivals` names the arrival process, as in `gamma:cv=2`. Without a `profile`, the rate is constant.
    """

    per_second: RequestRate
    arrivals: str = "poisson"
    profile: Profile = ()
    unit: ClassVar[str] = "req/s"

    def __post_init__(self) -> None:
        """Raise `ValueError` for a profile that cannot be repeated."""
        segments = [part for part in self.profile if isinstance(part, Segment)]
        endless = any(segment.seconds is None for segment in segments)
        if self.profile and (not segments or (endless and len(self.profile) > 1)):
            raise ValueError("a profile is a ramp over the window, or has a segment, and all of them have a length")

    @classmethod
    def changing(cls, profile: Profile, arrivals: str = "poisson") -> Rate:
        """Return the load of a profile, with the profile's mean rate."""
        requests = seconds = 0.0
        for part in profile:
            if isinstance(part, Burst):
                requests += part.requests
            else:
                length = part.seconds or 1.0
                requests += length * (part.first + part.last) / 2
                seconds += length
        return cls(requests / (seconds or 1.0), arrivals, profile)

    @property
    def value(self) -> float:
        return self.per_second

    @property
    def varies(self) -> bool:
        """Return whether the rate changes within a stage."""
        return bool(self.profile) or self.arrivals == TRACE

    def played(self, seconds: float) -> Profile:
        """Return the parts of the profile that begin within `seconds`; the last one ends with them."""
        played: list[Segment | Burst] = []
        for part in self.profile:
            length = part.seconds or 0.0 if isinstance(part, Segment) else 0.0
            if seconds <= 0:
                break
            if isinstance(part, Segment) and length > seconds:
                last = part.first + (part.last - part.first) * seconds / length
                played.append(Segment(part.first, last, seconds))
            else:
                played.append(part)
            seconds -= length
        return tuple(played)

    @property
    def label(self) -> str:
        return f"{self} {self.unit}"

    def __str__(self) -> str:
        """Write the rate in the form of the command line."""
        return "+".join(map(str, self.profile)) or f"{self.per_second:g}"


Load = Users | Rate
"""In JSON, `loop` is `closed` or `open`."""


def load_of(value: float, unit: str) -> Load:
    """Return a load of `value` users, or of requests per second at a constant rate."""
    return Users(int(value)) if unit == Users.unit else Rate(value)
