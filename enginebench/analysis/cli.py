"""The commands of the analysis; each has a file of its own."""

from __future__ import annotations

import typer

from enginebench.analysis.commands.plan import plan
from enginebench.analysis.compare.command import compare
from enginebench.analysis.compare.gate_command import gate
from enginebench.analysis.importers.command import import_results
from enginebench.analysis.report.command import report
from enginebench.analysis.report.index_command import list_runs

app = typer.Typer()
app.command()(report)
app.command("runs")(list_runs)
app.command()(compare)
app.command()(gate)
app.command("import")(import_results)
app.command()(plan)
