"""What one user makes of an observation: METRICS.md's formulas on Locust's page, and when it asks again."""

import dataclasses

import pytest

# They live apart from the Locust user: importing that would patch this process with gevent.
from loadtests.harness.users.page import e2e, tpot, ttft
from records.request import Observation

MS = 1_000_000
SEEN = Observation(
    outcome="ok", detail=None, status=200, t_sched=0, t_send=1 * MS, t_headers=2 * MS, t_first=301 * MS,
    t_first_out=301 * MS, t_last=501 * MS, t_end=502 * MS, read_first=301 * MS, stamps="kernel", merged_first=False,
    icl=(), chunks=9, first_chunk_tokens=2, prompt_tokens=40, output_tokens=12, token_source="usage", text=None,
    reconnected=False, streamed=True, server_queue=None, server_prefill=None, server_decode=None,
)  # fmt: skip


def test_the_formulas_count_from_the_write_and_leave_the_first_chunk_out() -> None:
    assert ttft(SEEN) == 300 * MS
    assert tpot(SEEN) == 20 * MS  # 200 ms for the 10 tokens after the first chunk's two
    assert e2e(SEEN) == 500 * MS


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"t_first": None, "t_last": None}, (None, None, 501 * MS), id="no token came: that is not fast"),
        pytest.param({"output_tokens": 2}, (300 * MS, None, 500 * MS), id="one chunk has no time per token"),
        pytest.param({"output_tokens": None}, (300 * MS, None, 500 * MS), id="tokens that nobody counted"),
        pytest.param(
            {"t_send": None, "t_first": None, "t_last": None, "outcome": "disconnected"},
            (None, None, 502 * MS),
            id="never sent: the time since it was due",
        ),
    ],
)
def test_what_was_not_observed_is_none(
    changes: dict[str, int | None], expected: tuple[float | None, float | None, float]
) -> None:
    seen = dataclasses.replace(SEEN, **changes)  # type: ignore[arg-type]
    assert (ttft(seen), tpot(seen), e2e(seen)) == expected
