"""Which contender is run when, once each has been asked whether it can be tested."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.access import Access
from loadtests.harness.client.address import Address
from loadtests.harness.client.dialects.registry import DIALECTS, Endpoint
from loadtests.harness.client.headers import parse_headers
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.job import Job
from loadtests.harness.run.target import Target, label_of


@dataclass(frozen=True, slots=True)
class Repeat:
    """One round in which each contender is run once. All contenders of a round get the same prompts."""

    index: int
    prompt_set: str


def rounds(tested: Sequence[Contender], repeats: int) -> Iterator[tuple[Repeat, list[Contender]]]:
    """The order of the runs: A B, B A, A B …, so that a drift of the machine favours neither."""
    series = secrets.token_hex(4)
    for index in range(repeats):
        order = list(tested) if index % 2 == 0 else list(reversed(tested))
        yield Repeat(index, f"{series}-{index}"), order


def prepared(job: Job, contenders: Sequence[Contender], repeats: int) -> list[Contender]:
    """The contenders with their labels, once each server was asked for its models and its engine.

    Raises `UserMistake` where one cannot be tested, or where a setting names a single run and there are several.
    """
    if (job.settings.label or job.settings.run_id) and len(contenders) > 1:
        raise UserMistake(
            "--label and --run-id name one run: name the contenders instead, such as --engine few=vllm, --url old=…"
        )
    if job.settings.run_id and repeats > 1:
        raise UserMistake("--run-id names one run: leave it out, or --repeat.")
    if job.settings.run_id and (job.settings.runs / job.settings.run_id / "meta.json").exists():
        raise UserMistake(f"{job.settings.runs / job.settings.run_id} is a run already: choose another --run-id.")
    found = []
    for one in contenders:
        name = job.settings.label or one.name
        if one.url:
            Address.parse(one.url).check(_endpoint(job))
            with Target(one.url, _access(job, one)) as target:
                target.model(one.model, DIALECTS[_endpoint(job)])
                name = name or label_of(None, target.engine(), one.url)
        found.append(replace(one, name=name))
    return found


def check_kept(tested: Sequence[Contender], repeats: int) -> None:
    """Raises `UserMistake` if there is nothing to keep loaded."""
    if not any(contender.engine for contender in tested):
        raise UserMistake("--keep-loaded is for engines that --engine serves, not for a running server.")
    if repeats == 1:
        raise UserMistake("--keep-loaded is for --repeat: a single round loads each engine once anyway.")


def _endpoint(job: Job) -> Endpoint:
    return job.planned.endpoint if job.planned is not None else "chat"


def _access(job: Job, one: Contender) -> Access:
    settings = replace(job.settings, header=parse_headers(one.headers) or job.settings.header)
    return settings.access(one.url, _endpoint(job), {**os.environ, **one.secrets})
