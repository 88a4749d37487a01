"""The command `doctor`: the checks of this machine, and the one command to run next on it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from enginebench.records.formatting import counted
from enginebench.settings.flags import AsJson

if TYPE_CHECKING:
    from enginebench.studies.quick.discovery import FoundServer
    from engines.machine.checks import Check

GPU_ENGINE = "vllm"  # the engine that most people use on a GPU


def doctor(
    load_test: Annotated[bool, typer.Option("--load-test", help="Also run a load test of ten seconds.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine: what is installed, what is missing, how to fix it, and what to run next.

    Exits with 2 only if enginebench cannot work at all.
    """
    from rich.markup import escape

    from enginebench.settings.console import CAUTION, GOOD, small_table, stderr, stdout
    from enginebench.studies.quick.discovery import find_server
    from engines.contract.registry import engine_class
    from engines.machine.checks import by_outcome, examine

    progress = stderr()
    task = f"Checking this machine{', with a load test of ten seconds' if load_test else ''} …"
    if not progress.is_terminal:
        progress.print(task)
    with progress.status(task):
        checks = examine(load_test)
    broken = [check.name for check in checks if check.required and not check.ok]
    if as_json:
        json.dump([asdict(check) for check in checks], sys.stdout, indent=2, ensure_ascii=False)
        sys.stdout.write("\n")
    else:
        table = small_table("check", "", "found")
        for check in by_outcome(checks):
            missing = f"[{'bold red' if check.required else CAUTION}]missing[/]"
            mark = missing if not check.ok else f"[{GOOD}]ok[/]" if check.needed else "[dim]not needed[/]"
            remedy = "" if check.ok else f"\n[dim]{escape(check.remedy)}[/]"
            table.add_row(check.name, mark, escape(check.found) + remedy)
        console = stdout(markup=True)
        console.print(table)
        if broken:
            console.print(f"\nenginebench cannot work here until this is fixed: {', '.join(broken)}.")
        else:
            optional = sum(not check.ok for check in checks)
            console.print(f"\nenginebench works here; {counted(optional, 'optional item')} missing.")
            command = next_command(checks, find_server(), lambda: engine_class(GPU_ENGINE).why_not_here() is None)
            console.print(f"Next: {shlex.join(command)}", soft_wrap=True)
    if broken:
        raise typer.Exit(2)


def next_command(checks: Sequence[Check], server: FoundServer | None, installed: Callable[[], bool]) -> tuple[str, ...]:
    """Test a server that listens, else the engine for the GPU, else the scripted engine. If `installed` is false, the
    engine for the GPU has to be installed first."""
    if server is not None:
        return ("enginebench", "quick", server.url)
    if not any(check.ok for check in checks if check.name == "GPU"):
        return ("enginebench", "quick")
    if installed():
        return ("enginebench", "run", "concurrent", "--engine", GPU_ENGINE)
    return ("enginebench", "engines", "install", GPU_ENGINE)
