"""The names of the standard library, which a locustfile must not take.

Locust loads `loadtests/concurrent.py` as a module called `concurrent`, puts it into `sys.modules`, and puts its folder
and the current one first on `sys.path`. Then no later import would find `concurrent.futures`, for example that of
gevent's thread pool.

This module imports nothing that a locustfile could hide.
"""

from __future__ import annotations

import gc
import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder

STANDARD = importlib.__path__[0].replace("\\", "/").removesuffix("/importlib")
"""The folder of the standard library's Python files."""

TYPE_CHECKING = False  # as `typing` has it
if TYPE_CHECKING:
    from types import ModuleType
else:
    ModuleType = type(sys)


class StandardLibraryFirst:
    """Find a standard module in the standard library, before the folders that Locust puts first on the path."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [STANDARD]) if name in sys.stdlib_module_names else None


def restore_standard_names() -> None:
    """Restore every standard name that a locustfile has taken so far."""
    if StandardLibraryFirst not in sys.meta_path:
        paths = next(index for index, finder in enumerate(sys.meta_path) if finder is PathFinder)
        sys.meta_path.insert(paths, StandardLibraryFirst)
    for name in sys.stdlib_module_names & sys.modules.keys():
        module = sys.modules[name]
        if _is_a_locustfile(module):
            module.__name__ = f"loadtests.{name}"
            sys.modules[module.__name__] = module
            setattr(sys.modules["loadtests"], name, module)
            del sys.modules[name]
            _restore(name)


def _is_a_locustfile(module: ModuleType) -> bool:
    """Return whether the module is a single file outside of the standard library."""
    file = getattr(module, "__file__", None)
    if file is None or hasattr(module, "__path__") or not file.endswith(".py"):
        return False
    return bool(file.replace("\\", "/").rpartition("/")[0] != STANDARD)


def _restore(name: str) -> None:
    # Earlier importers have the original module, with its locks and gevent's patches, which a second copy would lack.
    before = next((kept for kept in gc.get_objects() if isinstance(kept, ModuleType) and kept.__name__ == name), None)
    if before is not None:
        sys.modules[name] = before
    package = importlib.import_module(name)
    for full_name, module in list(sys.modules.items()):
        parent, _, child = full_name.rpartition(".")
        if parent == name:
            setattr(package, child, module)
