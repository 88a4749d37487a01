"""Give a standard library package its name back after Locust has loaded a locustfile under it.

Locust loads `loadtests/concurrent.py` as a module called `concurrent` and puts it into `sys.modules`. From then on
nothing in the process can find `concurrent.futures`. The locustfile imports `loadtests` first, and that calls this.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from types import ModuleType


def restore_standard_packages() -> None:
    """Rename every locustfile that hides a standard package, and load the package in its place."""
    paths = sysconfig.get_paths()
    installed = tuple(f"{paths[key]}{os.sep}" for key in ("stdlib", "platstdlib", "purelib", "platlib"))
    for name, module in list(sys.modules.items()):
        if name in sys.stdlib_module_names and _is_a_locustfile(module, installed):
            _restore(name, module)


def _is_a_locustfile(module: ModuleType, installed: tuple[str, ...]) -> bool:
    """A plain file outside the standard library and outside site-packages."""
    file = getattr(module, "__file__", None)
    return file is not None and not hasattr(module, "__path__") and not file.startswith(installed)


def _restore(name: str, locustfile: ModuleType) -> None:
    del sys.modules[name]
    locustfile.__name__ = f"loadtests.{name}"
    sys.modules[locustfile.__name__] = locustfile
    setattr(sys.modules["loadtests"], name, locustfile)

    # The locustfile's folder is first on sys.path while it loads, so the standard library is looked up by its own path.
    spec = PathFinder.find_spec(name, [sysconfig.get_path("stdlib")])
    assert spec is not None, f"no `{name}` in the standard library"
    assert spec.loader is not None
    package = module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)

    # What was imported from the package before keeps its identity: locks and patches live in those very modules.
    for full_name, module in list(sys.modules.items()):
        parent, _, child = full_name.rpartition(".")
        if parent == name:
            setattr(package, child, module)
