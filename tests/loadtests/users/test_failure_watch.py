"""A run whose first requests all fail in a way that load does not explain ends, as does one that loses its access;
others go on."""

from pathlib import Path

from tests.support.loadtests.locust_process import start
from tests.support.servers.scripted import Script, ScriptedServer

STAGE = ("--stages", "10", "--stage-seconds", "60")


def test_a_run_in_which_everything_is_refused_ends_with_the_servers_words(tmp_path: Path) -> None:
    """But for the key, which they quote."""
    script = Script(refuses={"model": "no such model for a-secret-key"})
    with ScriptedServer(script) as server:
        locust = start(server, tmp_path, *STAGE, processes=2, environment={"OPENAI_API_KEY": "a-secret-key"})
        output = locust.wait(60)
    assert locust.process.returncode == 2, output
    said = "(HTTP 400: no such model for ***)"
    assert f"requests failed in a way that load does not explain {said}" in output
    assert "a-secret-key" not in output
    assert all(b"a-secret-key" not in path.read_bytes() for path in locust.run.iterdir())
    assert 20 <= len(locust.records) < 2000
    assert locust.meta.stages[0].steady_end is None, "stopped before the end of its window"


def test_a_run_with_one_answer_among_the_first_goes_on_until_it_loses_its_access(tmp_path: Path) -> None:
    """Outcomes that load explains: tests/loadtests/client/test_outcome.py."""
    refused = [400] * 10 + [200] + [400] * 90  # for more than the seconds after which others end
    with ScriptedServer(Script(statuses=refused + [401] * 10_000)) as server:
        locust = start(server, tmp_path, *STAGE)
        output = locust.wait(60)
    assert locust.process.returncode == 2, output
    assert "requests were all refused because access was denied (HTTP 401: " in output
    assert "load does not explain" not in output
    assert len(locust.records) >= len(refused) + 20
