"""`enginebench engines` and `models`: what a person reads, and what a program does."""

import json
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from engines.contract.registry import ENGINES, engine_class
from engines.models.presets import PRESETS

runner = CliRunner()


def ask(*arguments: str, code: int = 0) -> str:
    result = runner.invoke(app, arguments, env={"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"})
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_engines_takes_a_line_for_each_in_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ENGINES:
        monkeypatch.setattr(engine_class(name), "why_not_here", classmethod(lambda cls: None))
        monkeypatch.setattr(engine_class(name), "version_here", classmethod(lambda cls: "2026.4.1.0"))
    shown = ask("engines").splitlines()
    for name, engine in ENGINES.items():
        (line,) = (one for one in shown if one.startswith(f"{name} "))
        assert line.rstrip().split(maxsplit=3)[1:] == ["2026.4.1.0", engine.batching, engine.title]
    assert shown[-1].startswith(f"{len(ENGINES)} of {len(ENGINES)} engines can run here")
    assert max(map(len, shown)) <= 80


def test_what_an_engine_lacks_is_not_broken_inside_words(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "it needs a great many words, such as `enginebench engines install something`, to say what is missing."
    for name in ENGINES:
        monkeypatch.setattr(engine_class(name), "why_not_here", classmethod(lambda cls: reason))
    shown = ask("engines")
    assert shown.split().count("something`,") == 1, "once for all that lack the same"
    assert set(ENGINES) <= set(shown.replace(",", " ").split())
    assert max(map(len, shown.splitlines())) <= 80


def test_an_engine_that_cannot_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from engines.mistralrs import MistralRsEngine

    monkeypatch.setattr(MistralRsEngine, "why_not_here", classmethod(lambda cls: "it needs the moon."))
    assert "mistralrs cannot run here: it needs the moon." in ask("engines", "mistralrs")
    assert "it needs the moon." in ask("engines")
    (row,) = json.loads(ask("engines", "mistralrs", "--json"))
    assert row["why_not_here"] == "it needs the moon."


def test_engines_shows_the_options_of_one() -> None:
    shown = ask("engines", "fake")
    assert "seconds to the first token" in shown
    assert "enginebench serve fake -o option=value" in shown


def test_engines_as_json() -> None:
    rows = {row["name"]: row for row in json.loads(ask("engines", "--json"))}
    assert list(rows) == list(ENGINES)
    assert rows["transformers"]["batching"] == "none"
    assert rows["transformers"]["version"] == version("transformers")
    assert all(row["version"] for row in rows.values() if row["why_not_here"] is None)
    assert {"name": "ttft", "default": 0.0, "choices": [], "help": "seconds to the first token"} in rows["fake"][
        "options"
    ]


def test_models_fit_into_eighty_columns() -> None:
    shown = ask("models")
    for preset in PRESETS.values():
        assert preset.name in shown
        assert preset.source in shown, "in one piece"
        assert f"{preset.context_length:,}" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_models_as_json() -> None:
    rows = {row["name"]: row for row in json.loads(ask("models", "--json"))}
    assert list(rows) == list(PRESETS)
    assert rows["mistral-7b"]["parameters"] == 7_248_023_552
    assert rows["mistral-7b"]["licence"] == "Apache-2.0"
    assert rows["mistral-7b"]["memory_bytes"]["float16"] == 2 * 7_248_023_552 + 2 * 65_536 * 4096


def test_fetch_prints_the_folder_alone() -> None:
    from engines.models.fetch import fetch_model

    assert ask("models", "fetch", "smollm2-135m") == f"{fetch_model().folder}\n"


def test_fetch_refuses_in_a_sentence() -> None:
    assert ask("models", "fetch", "wibble", code=2).startswith("no model called `wibble`; choose from smollm2-135m")
