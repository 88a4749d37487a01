"""The commands of the studies."""

from __future__ import annotations

import typer

from studies.doctor import doctor
from studies.quick.command import quick
from studies.study.command import study

app = typer.Typer()
app.command()(quick)
app.command()(study)
app.command()(doctor)
