"""The tables of settings in the documentation are those that the code declares."""

import re
from pathlib import Path
from typing import Any

import pytest

from enginebench.analysis.settings import PlanSettings
from enginebench.settings.schema import settings_of, table
from engines.bench.settings import BenchSettings
from engines.contract.registry import ENGINES, SharedOptions, engine_class
from loadtests.harness.scenario import Scenario
from loadtests.harness.settings.run_settings import RunSettings

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("page", "name", "declared"),
    [
        ("running-load-tests.md", "scenario", Scenario),
        ("running-load-tests.md", "run", RunSettings),
        ("capacity-planning.md", "plan", PlanSettings),
        ("engine-bench.md", "bench", BenchSettings),
        ("engines.md", "every engine", SharedOptions),
        *(("engine-options.md", name, engine_class(name).Options) for name in ENGINES),
    ],
)
def test_a_table_of_settings_is_the_declared_one(page: str, name: str, declared: type[Any]) -> None:
    flags = page not in {"engines.md", "engine-options.md"}
    shown = re.search(rf"<!-- settings: {name} -->\n(.*?)<!-- end -->", (DOCS / page).read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1] == table(declared, flags)
    assert len(shown[1].splitlines()) == 2 + len(settings_of(declared, flags))
