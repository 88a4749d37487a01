"""Options that commands of the analysis share, beside the settings of analysis/settings.py."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
