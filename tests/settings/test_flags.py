"""A command's flags come from declared settings."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from enginebench.settings.flags import read_settings, typed_texts, with_flags
from enginebench.settings.schema import setting


@dataclass(frozen=True, slots=True)
class Tea:
    cups: int = setting(2, "How many.", metavar="N", least=1, most=9)
    kind: Literal["green", "black"] = setting("black", "Which leaves.")
    milk: bool = setting(False, "With milk.")
    secret: str | None = setting(None, "Not a flag.", secret=True)
    steep: float = setting(180.0, "How long it is left.", metavar="S", least=0.5)


app = typer.Typer()
seen: dict[str, Any] = {}


@app.command()
@with_flags(Tea, leave_out={"secret"})
def brew(guest: str, **given: Any) -> None:
    seen.update(guest=guest, typed=typed_texts(Tea, given), tea=read_settings(Tea, given))


def test_flags_count_before_variables_and_those_before_defaults() -> None:
    variables = {"ENGINEBENCH_CUPS": "3", "ENGINEBENCH_KIND": "green", "ENGINEBENCH_SECRET": "s"}
    result = CliRunner().invoke(app, ["anna", "--cups", "4", "--milk"], env=variables)
    assert result.exit_code == 0, result.output
    assert seen["guest"] == "anna"
    assert seen["typed"] == {"cups": "4", "milk": "yes"}
    assert seen["tea"] == Tea(4, "green", True, "s")
    CliRunner().invoke(app, ["anna"])
    assert (seen["typed"], seen["tea"]) == ({}, Tea())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("5s", 5.0), ("5 s", 5.0), ("2m", 120.0), ("2min", 120.0), ("1h", 3600.0), ("7", 7.0)],
)
def test_a_time_has_a_unit_or_is_in_seconds(text: str, seconds: float) -> None:
    result = CliRunner().invoke(app, ["anna", "--steep", text])
    assert result.exit_code == 0, result.output
    assert seen["tea"].steep == seconds


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--cups", "0"], "--cups is 1 or more, not 0."),
        (["--cups", "10"], "--cups is 9 or less, not 10."),
        (["--cups", "two"], "--cups is a whole number, not `two`."),
        (["--steep", "100ms"], "--steep is 0.5 or more, not 100ms."),
        (["--steep", "1d"], "--steep is a time such as 500ms, 5s, 2m or 1h, not `1d`."),
        (["--kind", "red"], "--kind is one of green, black, not `red`."),
    ],
)
def test_a_wrong_value_is_one_sentence_that_names_the_flag(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(app, ["anna", *arguments])
    assert str(result.exception) == sentence


def test_the_help_has_each_flag_with_its_default_and_no_secret() -> None:
    text = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    assert "--cups N How many. Default: 2." in text
    assert "--kind green|black Which leaves. Default: black." in text
    assert "--secret" not in text
