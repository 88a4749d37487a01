"""Give a standard library package its name back after Locust has loaded one of our files under it.

Locust loads `loadtests/concurrent.py` as a module called `concurrent` and puts it into `sys.modules`, with its folder
first on the path. From then on nothing in the process can find `concurrent.futures`. A scenario whose file is named
like a standard package therefore begins with

    __name__ = locustfile_name(__name__)

and goes on under `loadtests.<name>`, which is also what its classes say of themselves.
"""

from __future__ import annotations

import sys
import sysconfig
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

import loadtests


def locustfile_name(name: str) -> str:
    """The name under which the module called `name` shall go on; a module that hides nothing keeps its own."""
    if name not in sys.stdlib_module_names:
        return name
    ours = sys.modules.pop(name)
    own_name = f"loadtests.{name}"
    sys.modules[own_name] = ours
    setattr(loadtests, name, ours)

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
    return own_name
