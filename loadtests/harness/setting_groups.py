"""The groups under which `--help`, Locust's page and the docs list the settings of load tests."""

from __future__ import annotations

from functools import partial

from enginebench.settings.schema import MOST_USED, setting

RESULTS = "Results"

most_used = partial(setting, group=MOST_USED)
load_setting = partial(setting, group="Load")
search_setting = partial(setting, group="Capacity search")
prompt_setting = partial(setting, group="Prompts and answers")
trace_setting = partial(setting, group="Recorded traffic")
api_setting = partial(setting, group="API and server")
run_setting = partial(setting, group=RESULTS)
