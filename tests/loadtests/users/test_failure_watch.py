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


def test_a_run_that_loses_its_access_ends(tmp_path: Path) -> None:
    with ScriptedServer(Script(statuses=[200] * 30 + [401] * 10_000)) as server:
        locust = start(server, tmp_path, *STAGE)
        output = locust.wait(60)
    assert locust.process.returncode == 2, output
    assert "requests were all refused because access was denied (HTTP 401: " in output
    assert len(locust.records) >= 50


def test_a_run_with_one_answer_among_the_first_goes_on_to_its_end(tmp_path: Path) -> None:
    """So do others whose outcomes load explains: tests/loadtests/client/test_outcome.py."""
    with ScriptedServer(Script(statuses=[400] * 10 + [200] + [400] * 10_000)) as server:
        locust = start(server, tmp_path, "--stages", "10", "--stage-seconds", "9")
        output = locust.wait(60)
    assert "load does not explain" not in output
    assert locust.meta.stages[0].steady_end is not None
