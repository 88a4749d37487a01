"""What docs/adding-an-engine.md promises. Its engine also runs through test_engine_contract.py."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engines.contract import registry
from engines.rust.programs import WORKSPACE
from tests.support.engines.documented_engine import NAME, block, installed


def test_a_whole_engine_has_fewer_than_a_hundred_lines() -> None:
    assert len(block("python", "parrot_engine.py").splitlines()) < 100


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


def test_without_the_package_its_name_means_nothing() -> None:
    with pytest.raises(ValueError, match="no engine called `parrot`; choose from fake, "):
        registry.spec(NAME)


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
    ours = registry.EngineSpec("engines.fake.engine:FakeEngine", "ours", "python", "none")
    monkeypatch.setitem(registry.ENGINES, NAME, ours)
    with installed(tmp_path):
        assert registry.spec(NAME) is ours
        assert registry.names().count(NAME) == 1
