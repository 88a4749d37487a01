"""Locust without its configuration files and variables, which were meant for other load tests.

    python loadtests/harness/users/launch.py -f loadtests/concurrent.py --headless

It is started by its path, so that the scenario imports `loadtests` first (`loadtests/harness/standard_names.py`).
"""

from __future__ import annotations

import os


def main() -> None:
    for name in [
        name for name in os.environ if name.startswith("LOCUST_")
    ]:  # Locust reads some of them when it is imported
        del os.environ[name]
    from locust import argument_parser
    from locust.main import main as locust

    new_parser = argument_parser.get_empty_argument_parser

    def without_files(add_help: bool = True, **_: object) -> argument_parser.LocustArgumentParser:
        return new_parser(add_help, default_config_files=())

    argument_parser.get_empty_argument_parser = without_files  # type: ignore[assignment]  # of functions without types
    locust()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
