"""The order of the contenders' runs, and the checks of the contenders before the first run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.dialects.endpoints import DIALECTS, Endpoint
from loadtests.harness.client.headers import parse_headers
from loadtests.harness.client.server_address import Address
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.job import Job
from loadtests.harness.run.target import Target, label_of

STARTS = "cold_start"  # the scenario that measures the server's start


@dataclass(frozen=True, slots=True)
class Repeat:
    """A round in which each contender is run once, with the same prompts."""

    index: int
    prompt_set: str


def rounds(tested: Sequence[Contender], repeats: int) -> Iterator[tuple[Repeat, list[Contender]]]:
    """Yield the order of the runs in each round: A B, B A, A B …, so that a drift of the machine favours neither."""
    series = secrets.token_hex(4)
    for index in range(repeats):
        order = list(tested) if index % 2 == 0 else list(reversed(tested))
        yield Repeat(index, f"{series}-{index}"), order


def prepared(job: Job, contenders: Sequence[Contender], repeats: int) -> list[Contender]:
    """Return the contenders with their labels, after asking each server for its models and its engine.

    Raises `UserMistake` if one cannot be tested, or if a setting names a single run and there are several.
    """
    if (job.settings.label or job.settings.run_id) and len(contenders) > 1:
        raise UserMistake(
            "--label and --run-id name one run: name the contenders instead, such as --engine few=vllm, --url old=…"
        )
    if job.settings.run_id and repeats > 1:
        raise UserMistake("--run-id names one run: leave it out, or --repeat.")
    if job.scenario.stem == STARTS and any(contender.url and not contender.restart for contender in contenders):
        raise UserMistake("cold_start starts the server: serve an engine with --engine, or say how with --restart.")
    endpoint: Endpoint = job.planned.endpoint if job.planned is not None else "chat"
    labelled = []
    for contender in contenders:
        name = job.settings.label or contender.name
        if contender.restart:
            name = name or label_of(None, None, contender.url)
        elif contender.url:
            Address.parse(contender.url).check(endpoint)
            settings = replace(job.settings, header=parse_headers(contender.headers) or job.settings.header)
            access = settings.access(contender.url, endpoint, {**os.environ, **contender.secrets})
            with Target(contender.url, access) as target:
                target.model(contender.model, DIALECTS[endpoint])
                name = name or label_of(None, target.engine(), contender.url)
        labelled.append(replace(contender, name=name))
    return labelled


def check_kept(tested: Sequence[Contender], repeats: int) -> None:
    """Raise `UserMistake` if there is nothing to keep loaded."""
    if not any(contender.engine for contender in tested):
        raise UserMistake("--keep-loaded is for engines that --engine serves, not for a running server.")
    if repeats == 1:
        raise UserMistake("--keep-loaded is for --repeat: a single round loads each engine once anyway.")
