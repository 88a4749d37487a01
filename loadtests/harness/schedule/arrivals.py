"""Arrival processes of an open loop: gaps between arrivals, as endless generators without clock or sleep.

    from itertools import accumulate, islice
    list(islice(accumulate(gaps("gamma:cv=2", rate=8.0, rng=Random(0))), 10))     # ten instants, seconds

`constant` spaces arrivals evenly. In `poisson`, arrivals are independent: gaps are exponential, the index of dispersion
of counts is 1. `gamma:cv=X` has gamma-distributed gaps with that coefficient of variation: above 1 it is bursty, below
1 more regular than Poisson. To add a process, write a generator here, and its row in `PROCESSES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from enginebench.settings.schema import UserMistake

Second = float


def constant(rate: float, rng: Random) -> Iterator[Second]:
    while True:
        yield 1 / rate


def poisson(rate: float, rng: Random) -> Iterator[Second]:
    while True:
        yield rng.expovariate(rate)


def gamma(rate: float, rng: Random, cv: float = 1.0) -> Iterator[Second]:
    """Yield gaps of a gamma distribution of shape k, whose coefficient of variation is 1/√k and whose mean is
    1/`rate`."""
    shape = 1 / cv**2
    while True:
        yield rng.gammavariate(shape, 1 / (shape * rate))


PROCESSES: dict[str, Callable[..., Iterator[Second]]] = {
    "constant": constant,
    "poisson": poisson,
    "gamma": gamma,
}


def gaps(process: str, rate: float, rng: Random) -> Iterator[Second]:
    """Return the gaps of the arrival process called `process`, at `rate` arrivals per second on average.

    Raises `UserMistake` with the choices for an unknown process or parameter.
    """
    name, _, texts = process.partition(":")
    parameters = {}
    try:
        for part in filter(None, texts.split(",")):
            key, _, value = part.partition("=")
            parameters[key.strip()] = float(value)
            if not parameters[key.strip()] > 0:
                raise ValueError
        next(PROCESSES[name](rate, Random(0), **parameters))  # a generator fails at its first gap
        return PROCESSES[name](rate, rng, **parameters)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        choices = ", ".join("gamma:cv=2" if choice == "gamma" else choice for choice in PROCESSES)
        raise UserMistake(f"arrivals are one of {choices}, not `{process}`.") from None


def parse_arrivals(text: str) -> str:
    """Return the name of an arrival process. Raises `UserMistake` with the choices for any other text."""
    gaps(text, 1.0, Random(0))
    return text
