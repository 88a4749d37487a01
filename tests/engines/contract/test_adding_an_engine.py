"""What docs/adding-an-engine.md promises. Its engine also runs through test_engine_contract.py."""

import json
import logging
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enginebench.analysis.engine_runs import by_settings
from enginebench.settings.schema import UserMistake, table
from engines.bench.settings import variants_of
from engines.contract import registry
from engines.contract.base import EngineInfo
from engines.process.engine_loading import load_engine
from engines.rust.programs import WORKSPACE
from tests.support.engines.documented_engine import NAME, block, installed
from tests.support.engines.small_model import small_model


def test_the_page_shows_the_echo_engine_as_it_is() -> None:
    echo = WORKSPACE / "protocol" / "src" / "bin" / "enginebench-echo.rs"
    assert block("rust") in echo.read_text()


def test_a_package_adds_an_engine_without_touching_ours(tmp_path: Path) -> None:
    with installed(tmp_path):
        listed = subprocess.run(
            [sys.executable, "-m", "enginebench", "engines", "--json"], capture_output=True, check=True, env=os.environ
        )
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert list(rows) == [*registry.ENGINES, NAME], "ours first, in their order"
    assert rows[NAME]["title"] == "repeats the prompt"
    assert rows[NAME]["why_not_here"] is None
    own, *shared = rows[NAME]["options"]
    assert own == {"name": "tpot", "default": 0.002, "choices": [], "help": "seconds per token"}
    assert [one["name"] for one in shared] == ["replicas", "memory"], "which every engine has"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        pytest.param("import moon_engine", "No module named 'moon_engine'", id="it needs what is not there"),
        pytest.param("PARROT = 7", "parrot_engine:PARROT is not an EngineSpec", id="it names something else"),
    ],
)
def test_a_broken_engine_is_left_out_and_the_others_are_listed(
    code: str, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with installed(tmp_path, code), caplog.at_level(logging.WARNING):
        assert registry.names() == list(registry.ENGINES)
    assert caplog.messages == [f"the engine `parrot` of parrot-engine is left out: {reason}."]


def test_our_names_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = registry.EngineSpec("engines.fake.engine:FakeEngine", "ours", "none")
    monkeypatch.setitem(registry.ENGINES, NAME, ours)
    with installed(tmp_path):
        assert registry.spec(NAME) is ours
        assert registry.names().count(NAME) == 1


async def test_an_option_is_one_declaration(tmp_path: Path) -> None:
    """Checked, documented, listed, given to the engine, recorded, and what tells two engines apart."""
    with installed(tmp_path):
        with pytest.raises(UserMistake, match=r"`tpot` .* 0"):
            registry.check_options(NAME, {"tpot": "-1"})
        with pytest.raises(UserMistake, match="tpot"):
            registry.check_options(NAME, {"tpo": "1"})
        declared = registry.engine_class(NAME).Options
        assert "| `tpot` | `0.002` | seconds per token |" in table(declared, flags=False), "as in docs/engines.md"
        (swept, other) = variants_of([NAME], [], [], ["tpot=0.001,0.003"])
        assert (swept.label, other.label) == ("parrot tpot=0.001", "parrot tpot=0.003")
        infos = [await loaded(options) for options in ({}, dict(other.options))]
    assert [info.options["tpot"] for info in infos] == [0.002, 0.003], "recorded, with its default too"
    assert (infos[0].name, infos[0].batching, infos[0].max_concurrency) == (NAME, "none", 1)
    runs: list[Any] = [SimpleNamespace(label=NAME, engine=asdict(info)) for info in infos]
    assert list(by_settings(runs)) == ["parrot (tpot=0.002)", "parrot (tpot=0.003)"]


async def loaded(options: dict[str, str]) -> EngineInfo:
    engine = load_engine(NAME, small_model(), options)
    try:
        return await engine.start()
    finally:
        await engine.stop()
