"""`enginebench plan`: the page, the document, and every way to be refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from enginebench.analysis.plan.command import EXAMPLE_DATA
from enginebench.cli import app
from tests.support.analysis.synthetic import Engine, simulate
from validation.plan.batching_server import Asked, BatchingServer, rates, users, write_run

SERVER = BatchingServer(jitter=0.02)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("plan") / "closed", SERVER, users(4, 8, 12, 20), Asked(), window=30.0)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("plan") / "open", SERVER, rates(3, 6, 9), Asked(), window=30.0)


def plan(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)])
    return result.exit_code, result.output


def test_the_first_screen_answers(closed: Path) -> None:
    """16 slots: with 5 replicas, 80 users have a slot each; with 4, every fifth waits for one."""
    objectives = ("--slo", "ttft_p99=0.4", "--slo", "tpot_p95=0.1")
    code, page = plan(closed, "--peak", "80users", *objectives, "--peak-seconds", "60", "--price", "2")
    assert code == 0
    text = " ".join(page.split())
    assert text.startswith(
        "80 users at TTFT p99 ≤ 400 ms and TPOT p95 ≤ 100 ms: 5 replicas [5, 5] at $7,300 a month, limited by "
        "TTFT p99 ≤ 400 ms (more slots would help most). "
    )
    rows = [
        "engine users within the SLO replicas for 80 users a month",
        "5 [5, 5] $7,300",
        "trade-off with 4 replicas: $1,460 a month less, but ",
        "how sure",
        "every objective is met in 60 of 60 simulated futures",
        "warn at the peak all 80 slots are taken",
    ]
    places = [text.index(row) for row in rows]
    assert places == sorted(places)
    assert "simulated 16 users within the objectives, missed at 17" in text
    assert (
        "warn at the peak all 80 slots are taken: one user more waits for admission; the answer is on a knife" in text
    )
    assert text.index("requests per GPU-hour") > places[-1]
    assert text.index("$10.0 an hour, $7,300 a month for 5 replicas") > places[-1]
    assert "20.0 ms + 2.00 ms per running request" in page
    assert "16, seen at saturation" in page


def test_the_document_says_the_same(opened: Path) -> None:
    code, output = plan(opened, "--peak", "30req/s", "--slo", "ttft_p95=0.3", "--peak-seconds", "60", "--json")
    assert code == 0
    told = json.loads(output)
    count = told["replicas"]["count"]
    assert told["answer"].startswith(f"30 req/s at TTFT p95 ≤ 300 ms: {count} replica")
    assert told["model"]["cost"]["base"] == pytest.approx(0.02, rel=0.02)
    assert told["replicas"]["chosen"]["met"] >= 0.95
    assert told["replicas"]["fewer"]["met"] < 0.95
    assert {one["stage"] for one in told["held_out"]} == {"3 req/s", "6 req/s", "9 req/s"}


def test_answers_without_usage_are_counted_with_the_tokenizer_that_is_named(tmp_path: Path) -> None:
    run = simulate(tmp_path / "run", Engine(), (2,), 5.0)
    for path in run.glob("requests*.jsonl"):
        uncounted = {"output_tokens": None, "token_source": None, "text": "a b c"}
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        changed = [line if line["event"] == "sent" else line | uncounted for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in changed))
    code, output = plan(run, "--peak", "4users", "--slo", "ttft_p99=1", "--tokenizer", tmp_path / "nowhere")
    assert code == 2
    assert "there is no tokenizer.json at" in output


def test_headroom_and_spares_are_added(opened: Path) -> None:
    plain, more = (
        json.loads(
            plan(opened, "--peak", "30req/s", "--slo", "ttft_p95=0.3", "--peak-seconds", "60", "--json", *extra)[1]
        )
        for extra in ((), ("--headroom", "0.5", "--spares", "1"))
    )
    assert more["replicas"]["count"] > plain["replicas"]["count"]
    assert more["peak"]["per_second"] == 45
    assert more["spares"] == 1
    assert "and 1 spare" in more["answer"]


def test_a_load_that_one_replica_was_never_measured_at_names_the_next_run(opened: Path) -> None:
    """Up to 1.5 times the 6.3 answers a second of the highest stage: a replica may bear more, but that is not known."""
    code, page = plan(opened, "--peak", "20req/s", "--slo", "e2e_p50=30", "--peak-seconds", "30")
    assert code == 0
    assert "fewer may do, but the runs support no more than 9.5 req/s on one replica" in " ".join(page.split())
    assert "Next: enginebench run rate --url URL --rate 10" in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(("--peak", "40"), "--peak is a rate such as 40req/s", id="a load without its unit"),
        pytest.param((), "a plan needs a load and an objective", id="no peak"),
        pytest.param(("--peak", "9users"), "a plan needs a load and an objective", id="no objective"),
        pytest.param(
            ("--peak", "9users", "--slo", "ttft_p99=1", "--balancer", "random"),
            "--balancer is for a rate",
            id="no rate",
        ),
        pytest.param(
            ("--peak", "9users", "--slo", "ttft_p99=0.001"),
            "no number of replicas meets",
            id="an objective out of reach",
        ),
        pytest.param(
            ("--peak", "9users", "--slo", "failures=0.01"),
            "failures are measured and not simulated",
            id="failures alone",
        ),
    ],
)
def test_refusals_are_a_sentence_and_exit_with_two(closed: Path, arguments: tuple[str, ...], sentence: str) -> None:
    code, output = plan(closed, *arguments)
    assert code == 2
    assert sentence in " ".join(output.split())
    assert "Traceback" not in output


def test_a_machine_that_drifted_is_refused_unless_told_otherwise(tmp_path: Path) -> None:
    slow = BatchingServer(slowdown=lambda now: 2.0 if 50 < now < 70 else 1.0)
    run = write_run(tmp_path / "run", slow, users(4, 8), Asked(), window=30.0)
    wanted = ("--peak", "8users", "--slo", "ttft_p95=2", "--peak-seconds", "30")
    code, output = plan(run, *wanted)
    assert code == 2
    assert "the machine drifted while it was measured" in output
    assert plan(run, *wanted, "--allow-drift")[0] == 0


def test_a_folder_of_runs_is_planned_as_a_report_of_it_is_made(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "runs" / f"run{seed}", SERVER, users(4, 8, 20), Asked(), seed=seed, window=15.0)
    wanted = ("--peak", "30users", "--slo", "e2e_p90=9", "--peak-seconds", "30", "--json")
    code, output = plan(tmp_path / "runs", *wanted)
    assert code == 0, output
    assert sorted(json.loads(output)["runs"]) == ["run1", "run2"]


def test_of_several_tiers_the_first_is_planned_for_and_that_is_said(closed: Path) -> None:
    tiers = ("--slo", "fast:ttft_p95=0.4", "--slo", "relaxed:ttft_p95=4")
    code, page = plan(closed, "--peak", "12users", *tiers, "--peak-seconds", "20")
    assert code == 0
    text = " ".join(page.split())
    assert text.startswith("12 users at TTFT p95 ≤ 400 ms: 1 replica [1, 1]")
    assert "warn planned for the tier fast, the first given: to plan for relaxed, give those objectives alone." in text


def test_the_example_needs_no_runs(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    code, output = plan("--example", "--html", page)
    assert code == 0, output
    data = json.loads(EXAMPLE_DATA.read_text())
    text = " ".join(output.split())
    assert text.startswith(data["answer"])
    assert text.endswith(f"Page: {page}"), "and opens nothing"
    assert data["unit"] == "users"
    assert 2 * data["peak"] >= 80, "its slider reaches 80 users"
    assert json.dumps(data["answer"]) in page.read_text()


def test_the_example_has_what_a_page_of_today_shows(closed: Path, tmp_path: Path) -> None:
    """`python -m docs.pictures plan` writes it anew."""
    page = tmp_path / "plan.html"
    wanted = ("--peak", "12users", "--slo", "ttft_p95=0.4", "--peak-seconds", "20", "--html", page)
    assert plan(closed, *wanted)[0] == 0
    written = re.search(r'id="data">(.*?)</script>', page.read_text())
    assert written is not None
    assert json.loads(written[1]).keys() == json.loads(EXAMPLE_DATA.read_text()).keys()
