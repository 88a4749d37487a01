"""The scenario of docs/running-load-tests.md with a user of its own, as the page has it, in a file called queue.py."""

import re
from pathlib import Path

from tests.support.loadtests.locust_process import ROOT, start
from tests.support.servers.scripted import ScriptedServer

PAGE = ROOT / "docs" / "running-load-tests.md"


def test_the_pages_scenario_asks_what_its_user_says(tmp_path: Path) -> None:
    (code,) = re.findall(r"^## Writing a scenario\n.*?^```python\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
    own = tmp_path / "queue.py"
    own.write_text(f"{code}\nimport queue\n\nassert queue.Queue(maxsize=1).empty()\n")
    with ScriptedServer() as server:
        locust = start(server, tmp_path, "--stages", "2", "--stage-seconds", "1", scenario=own, processes=2).finish()
    assert (locust.meta.scenario, locust.meta.stages[0].label) == ("queue", "2 users")
    assert len(locust.records) == len(server.bodies) > 10
    prompts = [body["messages"][-1]["content"] for body in server.bodies[-10:]]
    assert all(re.fullmatch(r"Translate into French: I have \d+ apples\.", prompt) for prompt in prompts)
    assert {body["max_tokens"] for body in server.bodies[-10:]} == {64}
