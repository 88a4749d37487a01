"""The command line and the variables of an engine's process, which may run on another interpreter than the server.

Another interpreter must import its own packages. So its path gets one folder, in the user's cache, with links only to
`engines`, `enginebench` and the module of the engine; our PYTHONPATH and VIRTUAL_ENV are removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from enginebench.settings.system import last_line
from engines.contract.base import Launch
from engines.contract.errors import EngineUnavailable
from engines.machine.devices import BY_BUS
from engines.models.cache import built_once, cache_folder

OURS = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "__PYVENV_LAUNCHER__")
# Binds itself to cores, then becomes the engine: the engine counts its cores when it starts.
BIND = "import os, sys; os.sched_setaffinity(0, map(int, sys.argv[1].split(','))); os.execvp(sys.argv[2], sys.argv[2:])"
QUESTION_TIMEOUT = 120.0  # seconds; a first import of a large library is slow
NO_ANSWER = "it gave no answer"


def command_of(launch: Launch, target: str) -> tuple[str, ...]:
    """Return the command line for an engine with the class `target` ("module:Class")."""
    command = launch.command or (launch.python or sys.executable, "-m", "engines.process.worker", target)
    command = (*launch.prefix, *command)
    if not launch.cores or not hasattr(os, "sched_setaffinity"):
        return command
    return (sys.executable, "-I", "-S", "-c", BIND, ",".join(map(str, launch.cores)), *command)


def environment_of(launch: Launch, target: str) -> dict[str, str]:
    """Return all variables of the process."""
    environment = {**BY_BUS, **os.environ}
    if launch.command is None:
        environment["PYTHONSAFEPATH"] = "1"  # the current folder may have files with the names of packages
        path = [str(modules_folder(target))]
        if is_foreign(launch):
            environment = {name: value for name, value in environment.items() if name not in OURS}
            environment["ENGINEBENCH_CACHE"] = str(cache_folder())  # finding it there would need a package of ours
        else:
            path += filter(None, [os.environ.get("PYTHONPATH")])
        environment["PYTHONPATH"] = os.pathsep.join(path)
    for name, value in launch.environment.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment


def is_foreign(launch: Launch) -> bool:
    return launch.command is None and launch.python is not None and launch.python != sys.executable


def modules_folder(target: str) -> Path:
    """Return a folder with the modules that the worker needs, and no others."""
    sources = [_source("engines"), _source("enginebench"), _source(target.partition(":")[0].partition(".")[0])]
    sources = list(dict.fromkeys(sources))
    identity = hashlib.sha256("\0".join(map(str, sources)).encode()).hexdigest()[:12]

    def link(folder: Path) -> None:
        for source in sources:
            (folder / source.name).symlink_to(source, target_is_directory=source.is_dir())

    return built_once(cache_folder() / "modules" / identity, link)


def _source(module: str) -> Path:
    spec = find_spec(module)
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        raise EngineUnavailable(f"the module {module} cannot be found.")
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(str(spec.origin)).resolve()


def why_not_there(launch: Launch, target: str) -> str | None:
    """Return the result of the engine's `why_not_here` on its own interpreter."""
    command = [*command_of(replace(launch, cores=(), prefix=()), target), "--why-not-here"]
    try:
        done = subprocess.run(
            command, env=environment_of(launch, target), capture_output=True, text=True, timeout=QUESTION_TIMEOUT
        )
        reason: str | None = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]} cannot run it: {error if isinstance(error, OSError) else NO_ANSWER}"
    except ValueError:
        return f"{command[0]} cannot run it: {last_line(done.stderr).rstrip('.') or NO_ANSWER}"
    return reason
