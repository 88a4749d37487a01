"""The commands of the studies."""

from __future__ import annotations

import typer

from enginebench.studies.calibrate.command import calibrate
from enginebench.studies.doctor import doctor
from enginebench.studies.quick.command import quick
from enginebench.studies.referee.command import referee
from enginebench.studies.study.command import study
from enginebench.studies.tune.command import tune

app = typer.Typer()
app.command()(quick)
app.command()(study)
app.command()(tune)
app.command()(doctor)
app.command()(calibrate)
app.command(context_settings={"allow_interspersed_args": False})(referee)  # options after COMMAND are COMMAND's
