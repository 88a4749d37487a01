"""Every setting of a load test in one place: its flag, its environment variable, its default, its help.

The same table makes the options of `locust -f loadtests/concurrent.py`, the fields of Locust's web page and the options
that `enginebench run` passes on. Values stay plain text and numbers until `Settings.parse` reads them, because Locust
sends them to its workers and changes them from its page. Nothing here imports Locust.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from loadtests.harness.schedule.stages import parse_margin, parse_steps, plan_stages
from loadtests.harness.workload.lengths import GRAMMAR, Lengths, parse_lengths
from records.record import Stage

Endpoint = Literal["chat", "completions"]
IgnoreEos = Literal["auto", "yes", "no"]
DEFAULT_STOP_TIMEOUT = 60.0  # seconds that the last requests of a finished run get


@dataclass(frozen=True, slots=True)
class Option:
    """`--some-name` with `ENGINEBENCH_SOME_NAME`. `check` raises `ValueError` with a sentence for a wrong text."""

    flag: str
    default: str | int | float | bool
    help: str
    metavar: str | None = None
    check: Callable[[str], object] | None = None
    choices: tuple[str, ...] | None = None
    in_web_page: bool = True

    @property
    def name(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def environment_variable(self) -> str:
        return f"ENGINEBENCH_{self.name.upper()}"


def _margin(text: str) -> float:
    return parse_margin(text, 1.0)


def _at_least(least: float) -> Callable[[str], float]:
    def check(text: str) -> float:
        if not float(text) >= least:
            raise ValueError(f"the number is {least:g} or more, not {text}.")
        return float(text)

    return check


LOAD = (
    Option(
        "--steps", "10-100:10", "Users of each stage: 10,20,40 or 10-100:10 (from, to, step).", "STEPS", parse_steps
    ),
    Option("--stage-seconds", 30.0, "Length of a stage in seconds.", "S", _at_least(0.1)),
    Option("--warm-up", "20%", "Start of each stage that is not counted: seconds or a share.", "S|%", _margin),
    Option("--cool-down", "10%", "End of each stage that is not counted: seconds or a share.", "S|%", _margin),
    Option("--think-time", 0.0, "Seconds between an answer and the same user's next request.", "S", _at_least(0)),
)
REQUESTS = (
    Option("--prompt-tokens", "128", f"Prompt length in tokens: {GRAMMAR}.", "N", parse_lengths),
    Option("--shared-prefix-tokens", 0, "Tokens at the start of every prompt that are the same for all.", "N"),
    Option("--output-tokens", "64", f"Most tokens of an answer: {GRAMMAR}.", "N", parse_lengths),
    Option(
        "--ignore-eos",
        "auto",
        "Make answers run to full length; auto: where the server says it can.",
        choices=("auto", "yes", "no"),
    ),
    Option("--model", "", "Model to ask for. Default: the first one the server lists.", "NAME"),
    Option("--endpoint", "chat", "Which API to speak.", choices=("chat", "completions")),
    Option("--no-stream", False, "Ask for whole answers instead of streams; then there is no TTFT."),
    Option("--temperature", 0.0, "Sampling temperature; 0 is greedy.", "T", _at_least(0)),
    Option("--seed", 0, "Seed of the prompts and the lengths: the same seed asks the same.", "N"),
    Option("--request-timeout", 600.0, "Seconds after which a request is given up.", "S", _at_least(0.1)),
)
RUN = (
    Option("--runs", "runs", "Folder in which each run gets a folder of its own.", "FOLDER"),
    Option("--label", "", "What reports call this run. Default: the server's engine, else its address.", "NAME"),
    Option(
        "--run-id",
        "",
        "Name of the run's folder. Default: time, label and four random letters.",
        "NAME",
        in_web_page=False,
    ),
    Option("--insecure", False, "Do not check the server's TLS certificate."),
    Option(
        "--api-key",
        "",
        "Key for the server; also taken from OPENAI_API_KEY. Never written to disk.",
        "KEY",
        in_web_page=False,
    ),
)
GROUPS: Mapping[str, tuple[Option, ...]] = {"Load": LOAD, "Requests": REQUESTS, "Run": RUN}
SECRETS = ("--api-key",)


def add_options(parser: argparse.ArgumentParser, for_locust: bool = False) -> None:
    """Add every option to a parser; `for_locust` to Locust's own, which has a page and its own way with variables."""
    for title, options in GROUPS.items():
        group = parser.add_argument_group(f"{title} (enginebench)")
        for option in options:
            default = os.environ.get("OPENAI_API_KEY", "") if option.flag == "--api-key" else option.default
            given: dict[str, Any] = {"help": option.help.replace("%", "%%")}
            if isinstance(option.default, bool):
                given["action"] = "store_true"
            else:
                given |= {"type": _checked(option), "metavar": option.metavar, "choices": option.choices}
            if for_locust:
                given |= {"default": default, "env_var": option.environment_variable}
            else:
                given["default"] = _from_environment(option, default)
            action = group.add_argument(option.flag, **given)
            action.include_in_web_ui = option.in_web_page  # type: ignore[attr-defined]  # Locust's page looks here


def _from_environment(option: Option, default: str | int | float | bool) -> str | int | float | bool:
    value = os.environ.get(option.environment_variable)
    if value is None:
        return default
    return value.lower() in {"true", "yes", "1"} if isinstance(option.default, bool) else value


def _checked(option: Option) -> Callable[[str], str | int | float]:
    kind = type(option.default)

    def read(text: str) -> str | int | float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"a number is needed, not `{text}`.") from None
        try:
            if option.check is not None:
                option.check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return value

    return read


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one run, read. Seconds and tokens."""

    stages: tuple[Stage, ...]
    think_time: float
    prompt_tokens: Lengths
    shared_prefix_tokens: int
    output_tokens: Lengths
    ignore_eos: IgnoreEos
    model: str | None
    endpoint: Endpoint
    streamed: bool
    temperature: float
    seed: int
    request_timeout: float
    runs: Path
    label: str | None
    run_id: str | None
    insecure: bool
    api_key: str | None = field(repr=False)

    @staticmethod
    def parse(given: Mapping[str, Any]) -> Settings:
        """`given` is an options namespace as a mapping. Raises `ValueError` with a sentence."""
        stage_seconds = float(given["stage_seconds"])
        return Settings(
            stages=plan_stages(
                parse_steps(str(given["steps"])),
                stage_seconds,
                parse_margin(str(given["warm_up"]), stage_seconds),
                parse_margin(str(given["cool_down"]), stage_seconds),
            ),
            think_time=float(given["think_time"]),
            prompt_tokens=parse_lengths(str(given["prompt_tokens"])),
            shared_prefix_tokens=int(given["shared_prefix_tokens"]),
            output_tokens=parse_lengths(str(given["output_tokens"])),
            ignore_eos=cast(IgnoreEos, given["ignore_eos"]),
            model=given["model"] or None,
            endpoint=cast(Endpoint, given["endpoint"]),
            streamed=not given["no_stream"],
            temperature=float(given["temperature"]),
            seed=int(given["seed"]),
            request_timeout=float(given["request_timeout"]),
            runs=Path(given["runs"]),
            label=given["label"] or None,
            run_id=given["run_id"] or None,
            insecure=bool(given["insecure"]),
            api_key=given["api_key"] or None,
        )

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


def without_secrets(command: list[str]) -> tuple[str, ...]:
    """A command line fit to be written down."""
    shown: list[str] = []
    hide_next = False
    for word in command:
        flag, equals, _ = word.partition("=")
        shown.append("***" if hide_next else f"{flag}=***" if equals and flag in SECRETS else word)
        hide_next = word in SECRETS
    return tuple(shown)
