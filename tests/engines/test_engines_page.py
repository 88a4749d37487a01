"""The page on engines names every engine, and the versions that their environments are pinned to."""

from pathlib import Path

import pytest

from engines.contract.registry import ENGINES, engine_class
from engines.process.environments import InstalledEngine

DOCS = Path(__file__).parents[2] / "docs"
PAGE, OPTIONS = ((DOCS / name).read_text() for name in ("engines.md", "engine-options.md"))


@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_has_a_row_a_section_and_what_was_run(name: str) -> None:
    run = PAGE[PAGE.index("## What has been tested") : PAGE.index("## Separate environments")]
    assert PAGE.count(f"\n| `{name}` | ") >= 1
    assert f"\n## {name}\n" in OPTIONS
    assert f"`{name}`" in run


@pytest.mark.parametrize("name", [name for name in ENGINES if issubclass(engine_class(name), InstalledEngine)])
def test_the_pinned_version_is_on_the_page(name: str) -> None:
    kind = engine_class(name)
    assert issubclass(kind, InstalledEngine)
    for packages in filter(None, (kind.environment.cpu, kind.environment.cuda)):
        assert f"`{packages.packages[0]}`" in PAGE + OPTIONS
