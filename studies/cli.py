"""The commands of the studies."""

from __future__ import annotations

import typer

from studies.quick.command import quick

app = typer.Typer()
app.command()(quick)
