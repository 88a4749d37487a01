"""The declared settings as options of Locust's command line and page, or of a plain parser."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from enginebench.records.command import typed_command
from enginebench.records.run import START_EVENTS
from enginebench.settings.schema import MOST_USED, Setting, settings_of
from enginebench.settings.system import free_port
from loadtests.harness.scenario import Scenario, read
from loadtests.harness.settings.run_settings import RunSettings
from loadtests.harness.without_effect import check_effects

# Environment variables from `enginebench run` to the planning process: the typed command, the engine's process, the
# instants at which the server was started, listened and was ready and files left the cache (monotonic nanoseconds), the
# repeat and its prompt set.
COMMAND, ENGINE_PID = "ENGINEBENCH_TYPED_COMMAND", "ENGINEBENCH_ENGINE_PID"
SERVER_EVENTS = {event: f"ENGINEBENCH_{event.upper().replace(' ', '_')}" for event in START_EVENTS}
FILES_UNCACHED, SERVER_STARTED, SERVER_LISTENING, SERVER_READY = SERVER_EVENTS.values()
REPEAT, PROMPT_SET = "ENGINEBENCH_REPEAT", "ENGINEBENCH_PROMPT_SET"
GROWS_SINCE = "ENGINEBENCH_GROWS_SINCE"  # the instant from which `--by growth` counts, if that is not the run's start
LOOPBACK = "127.0.0.1"
TYPED = "enginebench_typed"  # in an options namespace: the names of the settings that were typed or set by a variable
DEFAULT_STOP_TIMEOUT = 60.0  # seconds for the last requests of a completed run


def add_options(parser: argparse.ArgumentParser, scenario: Scenario) -> None:
    """Add every setting to Locust's parser. Values stay text: Locust sends them to its workers and shows them."""
    parser.allow_abbrev = False  # the value of an abbreviated secret flag would be recorded
    parser.set_defaults(otel=False)  # Locust reads its own --otel, which ours replaces
    parser.set_defaults(web_host=LOOPBACK)  # whoever opens Locust's page can load any server from this machine
    for action in parser._actions:
        if action.dest == "web_host":
            action.help = f"Host to bind the web interface to, '*' for all. Defaults to {LOOPBACK}"
    groups: dict[str, Any] = {}
    declared = [
        (setting, defaults) for defaults in (scenario, RunSettings()) for setting in settings_of(type(defaults))
    ]
    for setting, defaults in sorted(declared, key=lambda pair: pair[0].group != MOST_USED):  # first on the page, too
        if setting.group not in groups:
            groups[setting.group] = parser.add_argument_group(
                f"{setting.group} (enginebench)",
                conflict_handler="resolve",  # our --otel replaces Locust's, which would work while requests wait
            )
        default = getattr(defaults, setting.name)
        action = groups[setting.group].add_argument(setting.flag, **_argument(setting, default))
        action.include_in_web_ui = setting.on_page  # Locust's page reads this


def _argument(setting: Setting, default: Any) -> dict[str, Any]:
    argument: dict[str, Any] = {"dest": setting.name, "env_var": setting.variable}
    text = setting.help.replace("%", "%%")
    if setting.is_switch:
        return argument | {"help": text, "action": "store_true", "default": default}
    shown = "" if setting.secret else setting.text(default)
    return argument | {
        "help": f"{text} Default: {shown.replace('%', '%%')}." if shown else text,
        "type": _checked(setting),
        "metavar": setting.metavar or setting.name.upper(),
        "choices": setting.choices or None,
        "default": setting.text(default),
        "action": _Lines if setting.repeatable else _Typed,
    }


class _Typed(argparse.Action):
    """Note that a flag or a variable was set: one without effect is refused even at its default."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        setattr(namespace, self.dest, values)
        setattr(namespace, TYPED, [*getattr(namespace, TYPED, []), self.dest])


class _Lines(argparse.Action):
    """Join the values of a repeated flag into one text of several lines, which replaces the default."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        typed = getattr(namespace, TYPED, [])
        more = f"{getattr(namespace, self.dest)}\n{values}" if self.dest in typed else values
        setattr(namespace, self.dest, more)
        setattr(namespace, TYPED, [*typed, self.dest])


def _checked(setting: Setting) -> Callable[[str], str]:
    def check(text: str) -> str:
        try:
            setting.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return check


def read_options(options: Mapping[str, Any], defaults: Scenario) -> tuple[Scenario, RunSettings]:
    """Return the scenario and the run's settings from an options namespace. Raises `UserMistake`, also for a setting
    without effect."""
    scenario = read(defaults, options)
    check_effects(defaults, scenario, options.get(TYPED, ()))
    return scenario, read(RunSettings(), options)


def processes_options(count: int) -> list[str]:
    """Return Locust's options for `count` processes on this machine, with a separate port for each run."""
    if count == 1:
        return []
    port = str(free_port())
    bound = ["--master-bind-host", LOOPBACK, "--master-bind-port", port, "--master-port", port]
    return ["--processes", str(count), *bound]


def command_of_run() -> tuple[str, ...]:
    """Return the typed command that made this run, without secrets: of this process, or of the one that started it."""
    if command := os.environ.get(COMMAND):
        return tuple(json.loads(command))
    return typed_command({setting.flag for setting in settings_of(RunSettings) if setting.secret})
