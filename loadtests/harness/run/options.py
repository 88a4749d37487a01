"""The declared settings as options of Locust's command line and page, or of a plain parser."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from enginebench.records.command import typed_command
from enginebench.settings.schema import Setting, settings_of
from enginebench.settings.system import free_port
from loadtests.harness.scenario import Scenario, read
from loadtests.harness.settings.run_settings import RunSettings
from loadtests.harness.without_effect import check_effects

# Environment variables by which `enginebench run` tells the process that plans a run what was typed, which repeat this
# is and whose prompts it shares, which process is the engine's, and when the server was started and ready, in monotonic
# nanoseconds.
COMMAND, ENGINE_PID = "ENGINEBENCH_TYPED_COMMAND", "ENGINEBENCH_ENGINE_PID"
SERVER_STARTED, SERVER_READY = "ENGINEBENCH_SERVER_STARTED", "ENGINEBENCH_SERVER_READY"
REPEAT, PROMPT_SET = "ENGINEBENCH_REPEAT", "ENGINEBENCH_PROMPT_SET"
GROWS_SINCE = "ENGINEBENCH_GROWS_SINCE"  # the instant from which `--by growth` counts, if that is not the run's start
LOOPBACK = "127.0.0.1"
TYPED = "enginebench_typed"  # in an options namespace: the names of the settings that were given as flag or variable
DEFAULT_STOP_TIMEOUT = 60.0  # seconds that the last requests of a finished run get


def add_options(parser: argparse.ArgumentParser, scenario: Scenario) -> None:
    """Add every setting to Locust's parser. Values stay text: Locust sends them to its workers and shows them."""
    parser.allow_abbrev = False  # half a flag would not be known as a secret one, and its value would be written down
    parser.set_defaults(web_host=LOOPBACK)  # whoever reaches Locust's page may load any server from this machine
    for action in parser._actions:
        if action.dest == "web_host":
            action.help = f"Host to bind the web interface to, '*' for all. Defaults to {LOOPBACK}"
    groups: dict[str, Any] = {}
    for defaults in (scenario, RunSettings()):
        for one in settings_of(type(defaults)):
            if one.group not in groups:
                groups[one.group] = parser.add_argument_group(f"{one.group} (enginebench)")
            action = groups[one.group].add_argument(one.flag, **_argument(one, getattr(defaults, one.name)))
            action.include_in_web_ui = one.on_page  # Locust's page looks here


def _argument(one: Setting, default: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"dest": one.name, "env_var": one.variable}
    text = one.help.replace("%", "%%")
    if one.is_switch:
        return given | {"help": text, "action": "store_true", "default": default}
    shown = "" if one.secret else one.text(default)
    return given | {
        "help": f"{text} Default: {shown.replace('%', '%%')}." if shown else text,
        "type": _checked(one),
        "metavar": one.metavar or one.name.upper(),
        "choices": one.choices or None,
        "default": one.text(default),
        "action": _Lines if one.repeatable else _Typed,
    }


class _Typed(argparse.Action):
    """Notes that a flag or a variable was given, whatever its value: one with the default's may have no effect, too."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, values)
        setattr(namespace, TYPED, [*getattr(namespace, TYPED, []), self.dest])


class _Lines(argparse.Action):
    """Join the values of a repeated flag into one text of several lines, in place of the default."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        before = getattr(namespace, self.dest)
        setattr(namespace, self.dest, values if before == self.default else f"{before}\n{values}")


def _checked(one: Setting) -> Callable[[str], str]:
    def check(text: str) -> str:
        try:
            one.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return check


def read_options(given: Mapping[str, Any], scenario: Scenario) -> tuple[Scenario, RunSettings]:
    """The scenario and the run's settings as an options namespace has them. Raises `UserMistake`, for a setting without
    effect too."""
    in_force = read(scenario, given)
    check_effects(scenario, in_force, given.get(TYPED, ()))
    return in_force, read(RunSettings(), given)


def processes_options(count: int) -> list[str]:
    """Options of Locust for so many processes on this machine, on a port of their own, so that runs do not collide."""
    if count == 1:
        return []
    port = str(free_port())
    bound = ["--master-bind-host", LOOPBACK, "--master-bind-port", port, "--master-port", port]
    return ["--processes", str(count), *bound]


def command_of_run() -> tuple[str, ...]:
    """Return what was typed to make this run, without secrets: in this process, or in the one that started it."""
    if told := os.environ.get(COMMAND):
        return tuple(json.loads(told))
    return typed_command({one.flag for one in settings_of(RunSettings) if one.secret})
