"""A name of the standard library means the standard library, whatever a locustfile is called and wherever it lies.

Locust loads `loadtests/concurrent.py` as a module called `concurrent`, puts it into `sys.modules`, and puts its folder
and the current one first on `sys.path`. From then on nothing in the process would find `concurrent.futures`: neither
what is imported lazily later, such as gevent's thread pool, nor a locustfile's neighbours.

Imports nothing that a locustfile could hide.
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
    """Finds a standard module in the standard library, ahead of the folders that Locust puts first on the path."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [STANDARD]) if name in sys.stdlib_module_names else None


def restore_standard_names() -> None:
    """Give every standard name back that a locustfile has taken. Called again, it finds those loaded since."""
    if StandardLibraryFirst not in sys.meta_path:
        paths = next(index for index, finder in enumerate(sys.meta_path) if finder is PathFinder)
        sys.meta_path.insert(paths, StandardLibraryFirst)
    for name in sys.stdlib_module_names & sys.modules.keys():
        module = sys.modules[name]
        if _is_a_locustfile(module):
            _rename(name, module)
            _restore(name)


def _is_a_locustfile(module: ModuleType) -> bool:
    """Whether it is one file, and not the standard library's."""
    file = getattr(module, "__file__", None)
    if file is None or hasattr(module, "__path__") or not file.endswith(".py"):
        return False
    return bool(file.replace("\\", "/").rpartition("/")[0] != STANDARD)


def _rename(name: str, locustfile: ModuleType) -> None:
    locustfile.__name__ = f"loadtests.{name}"
    sys.modules[locustfile.__name__] = locustfile
    setattr(sys.modules["loadtests"], name, locustfile)
    del sys.modules[name]


def _restore(name: str) -> None:
    # Who imported the module before still has it, with its locks and gevent's patches: nobody may get a second one.
    before = next((kept for kept in gc.get_objects() if isinstance(kept, ModuleType) and kept.__name__ == name), None)
    if before is not None:
        sys.modules[name] = before
    package = importlib.import_module(name)
    for full_name, module in list(sys.modules.items()):
        parent, _, child = full_name.rpartition(".")
        if parent == name:
            setattr(package, child, module)
