"""The commands of the analysis, each of which has its own file."""

from __future__ import annotations

import typer

from enginebench.analysis.commands.gate import gate
from enginebench.analysis.commands.plan import plan
from enginebench.analysis.commands.report import compare, report
from enginebench.analysis.commands.runs import list_runs
from enginebench.analysis.formats.command import import_results

app = typer.Typer()
app.command()(report)
app.command("runs")(list_runs)
app.command()(compare)
app.command()(gate)
app.command("import")(import_results)
app.command()(plan)
