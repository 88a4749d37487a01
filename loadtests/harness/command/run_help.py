"""The help of `enginebench run`: the most used options on one screen, and with `--help-all` every option."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import typer
from typer.core import TyperCommand

from loadtests.harness.command.scenarios import scenario_list

BASIC = (
    *("engine", "url", "model", "stages", "rate", "stage_seconds", "slo", "prompt_tokens", "output_tokens"),
    *("repeat", "help_all"),
)
OTHER_NAMES = dict.fromkeys(("--users", "-u", "--concurrency"), "--stages")  # names in other load testers
WIDTH, FLAGS = 80, 26  # columns of the page, and of its flags
BRIEF = """\
Usage: enginebench run SCENARIO (URL | --engine ENGINE) [OPTIONS]

Test engines or servers under load, and report.

Scenarios, and the question that each answers; or the path of a locustfile:
{scenarios}
Options:
{options}
Examples:
  enginebench run concurrent --engine vllm --engine sglang --stages 10,20,40
  enginebench run rate http://127.0.0.1:8000 --rate 2,4 --slo ttft_p99=1s
"""


class RunCommand(TyperCommand):
    """Show the basic options by default, and pass the words after `--` to Locust."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        words = [word.partition("=") for word in args[:end]]
        super().parse_args(ctx, ["".join((OTHER_NAMES.get(name, name), *value)) for name, *value in words])
        for_locust = args[end + 1 :]
        ctx.args = for_locust
        return for_locust

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if ctx.meta.get(__name__):
            super().format_help(ctx, formatter)
        else:
            parameters = {parameter.name: parameter for parameter in self.get_params(ctx)}
            options = "".join(_option(parameters[name]) for name in BASIC)
            formatter.write(BRIEF.format(scenarios=scenario_list(), options=options))


def show_all(ctx: typer.Context, every: bool) -> None:
    """Show the help with `every` option."""
    if every:
        ctx.meta[__name__] = True
        typer.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _option(parameter: Any) -> str:
    """Return the flag with its metavar, and the first clause of its help."""
    metavar = "" if parameter.is_flag else f" {parameter.metavar}"
    text = re.split(r"[:;.](?: |$)", parameter.help)[0]
    lines = textwrap.wrap(text, WIDTH - FLAGS - 2, break_on_hyphens=False)
    flag = f"{parameter.opts[0]}{metavar}"
    return "".join(f"  {flag if line is lines[0] else '':{FLAGS}}{line}\n" for line in lines)
