"""Imports flow one way: settings ← engines ← servers; records ← loadtests and analysis; engines/bench joins engines and
analysis. Read off the syntax tree."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BENCH = "engines.bench"  # a room inside another, which the rest of it does not import
SETTINGS, RECORDS, ANALYSIS, STUDIES = (
    f"enginebench.{room}" for room in ("settings", "records", "analysis", "studies")
)
ROOMS = (SETTINGS, RECORDS, "engines", BENCH, "servers", "loadtests", ANALYSIS, STUDIES)
MAY_IMPORT = {
    SETTINGS: {SETTINGS},
    RECORDS: {RECORDS, "enginebench.settings.units"},
    "engines": {"engines", SETTINGS},
    BENCH: {
        *(BENCH, "engines", ANALYSIS, RECORDS, SETTINGS),
        "loadtests.harness.run.host",  # facts of the machine
    },
    "servers": {"servers", "engines", SETTINGS},
    "loadtests": {"loadtests", RECORDS, SETTINGS},
    ANALYSIS: {ANALYSIS, RECORDS, SETTINGS},
    STUDIES: {
        *(STUDIES, ANALYSIS, "loadtests", RECORDS, SETTINGS),
        *("engines.machine", "engines.contract.registry"),  # what is on this machine
        *("engines.bench.settings", "engines.bench.result", "engines.bench.report"),  # run as a process, and reported
    },
}
STANDARD_LIBRARY_ONLY = (
    "enginebench/settings/schema.py",
    "enginebench/settings/units.py",
    "engines/contract/base.py",
    "engines/contract/protocol.py",
    "engines/process/worker.py",
)


def imported(path: Path) -> Iterator[str]:
    """Every module that a file names in an import, at any depth."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a name comes from"
            yield node.module or ""
            # `from engines import bench` names a module too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names if (node.module or "") in ROOMS)


def tops(path: Path) -> set[str]:
    return {module.partition(".")[0] for module in imported(path)}


def files(room: str) -> list[Path]:
    """Those of the room alone, without a room inside it."""
    inside = [ROOT / other.replace(".", "/") for other in ROOMS if other.startswith(room + ".")]
    found = sorted((ROOT / room.replace(".", "/")).rglob("*.py"))
    return [path for path in found if not any(path.is_relative_to(folder) for folder in inside)]


def room_of(module: str) -> str | None:
    """The innermost one."""
    return max((room for room in ROOMS if f"{module}.".startswith(room + ".")), key=len, default=None)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    assert files(room)
    for path in files(room):
        for module in imported(path):
            if module.partition(".")[0] in {*ROOMS, "enginebench"}:
                by_name = any(f"{module}.".startswith(name + ".") for name in MAY_IMPORT[room])
                allowed = by_name and (room_of(module) != BENCH or room in {BENCH, STUDIES})
                assert allowed, f"{path.relative_to(ROOT)} imports {module}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Nor for annotations only: whoever reads one of them would have to read them all."""
    modules = {module_name(path): path for room in ROOMS for path in files(room)}
    imports = {name: modules.keys() & set(imported(path)) - {name} for name, path in modules.items()}
    order = list(TopologicalSorter(imports).static_order())  # raises where there is a circle, and names it
    assert len(order) == len(modules) > 300


def test_no_folders_of_the_load_tests_import_each_other_in_a_circle() -> None:
    harness = ROOT / "loadtests" / "harness"
    inside = {folder.name for folder in harness.iterdir() if folder.is_dir()} - {"__pycache__"}
    imports: dict[str, set[str]] = {name: set() for name in inside}
    for path in harness.glob("*/**/*.py"):
        folder = path.relative_to(harness).parts[0]
        parts = [module.split(".") for module in imported(path) if module.startswith("loadtests.harness.")]
        imports[folder] |= {part[2] for part in parts if part[2] in inside - {folder}}
    list(TopologicalSorter(imports).static_order())  # raises where there is a circle, and names it


def test_only_the_load_tests_import_what_patches_the_process() -> None:
    for path in [ROOT / "enginebench" / "cli.py", *(p for room in ROOMS if room != "loadtests" for p in files(room))]:
        assert not tops(path) & {"locust", "gevent", "geventhttpclient"}, path


def test_the_records_import_msgspec_and_nothing_heavier() -> None:
    """Every process that makes load imports them."""
    for path in files(RECORDS):
        assert tops(path) <= sys.stdlib_module_names | {"enginebench", "msgspec"}, path


@pytest.mark.parametrize("name", STANDARD_LIBRARY_ONLY)
def test_what_runs_in_foreign_environments_is_plain_standard_library(name: str) -> None:
    assert tops(ROOT / name) <= sys.stdlib_module_names | {"engines", "enginebench"}


def test_only_users_and_scenarios_import_locust() -> None:
    """Importing it patches the process: whoever drives, plans or records a run stays free of that."""
    users = ROOT / "loadtests/harness/users"
    scenarios = set((ROOT / "loadtests").glob("*.py"))
    for path in files("loadtests"):
        if "locust" in tops(path):
            assert path.is_relative_to(users) or path in scenarios, path


def test_the_packages_that_a_scenario_enters_by_import_nothing_heavy() -> None:
    """`loadtests` gives standard packages their names back, before anything that needs them is imported."""
    assert set(imported(ROOT / "loadtests/__init__.py")) == {"sys", "loadtests.harness.standard_names"}
    assert set(imported(ROOT / "loadtests/harness/standard_names.py")) <= set(sys.stdlib_module_names) | {
        "importlib.machinery"
    }
    assert (ROOT / "loadtests/harness/__init__.py").read_text() == ""


HEAVY = ("torch", "transformers", "polars", "fastapi", "uvicorn")
CLIS = [f"{room}.cli" for room in ("enginebench", *ROOMS) if (ROOT / room.replace(".", "/") / "cli.py").exists()]


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        *((cli, (*HEAVY, "locust", "gevent")) for cli in CLIS),
        # A process that makes load imports nothing that serves or analyses.
        ("loadtests.concurrent", (*HEAVY, "scipy", "numpy", "tokenizers")),
    ],
)
def test_help_and_load_are_light(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import {module}, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
