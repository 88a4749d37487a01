"""What depends on what in the recorded calls of agents."""

from __future__ import annotations

import pytest

from loadtests.harness.schedule.trace import PlayedSession, TraceRequest
from loadtests.harness.workload.agent_sessions import Agent, AgentCall, session_requests


def call(start: float, end: float) -> AgentCall:
    return AgentCall(start, end, TraceRequest(10, 5))


def found(*items: AgentCall | Agent) -> list[tuple[tuple[int, ...], float]]:
    return [(request.after, request.pause) for request in session_requests(Agent(list(items)))]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param(
            [call(10, 12), call(15, 16), call(16, 20)], [((), 0), ((0,), 3), ((1,), 0)], id="turns, and a tool between"
        ),
        pytest.param(
            [call(0, 2), call(3, 9), call(4, 6), call(10, 11)],
            [((), 0), ((0,), 1), ((0,), 2), ((1, 2), 1)],
            id="two calls at a time, and one that needs both",
        ),
        pytest.param(
            [call(0, 2), Agent([call(3, 4), call(5, 9)]), Agent([call(3, 7), call(7.5, 8)]), call(10, 11)],
            [((), 0), ((0,), 1), ((0,), 1), ((1,), 1), ((2,), 0.5), ((3, 4), 1)],
            id="parallel sub-agents are independent of each other, and the parent waits for both",
        ),
        pytest.param(
            [call(0, 2), Agent([call(3, 4)], awaited=False), call(5, 6)],
            [((), 0), ((0,), 1), ((0,), 3)],
            id="nothing waits for what runs in the background",
        ),
        pytest.param(
            [call(0, 2), Agent([call(3, 4), Agent([call(5, 6), call(6, 8)]), call(9, 10)]), call(11, 12)],
            [((), 0), ((0,), 1), ((1,), 1), ((2,), 0), ((3,), 1), ((4,), 1)],
            id="a sub-agent of a sub-agent",
        ),
        pytest.param(
            [Agent([call(1, 4)]), Agent([call(2, 6)]), call(7, 8)], [((), 0), ((), 1), ((0, 1), 1)], id="two begin it"
        ),
        pytest.param([call(0, 0), call(0, 0), call(1, 1)], [((), 0), ((0,), 0), ((0, 1), 1)], id="no durations"),
    ],
)
def test_a_call_follows_the_latest_that_had_ended(
    items: list[AgentCall | Agent], expected: list[tuple[tuple[int, ...], float]]
) -> None:
    assert found(*items) == expected


def test_a_long_session_is_a_chain() -> None:
    chain = found(*(call(2 * turn, 2 * turn + 1) for turn in range(5000)))
    assert chain[1:] == [((turn,), 1) for turn in range(4999)]


REQUESTS = session_requests(
    Agent([call(0, 2), Agent([call(3, 4), call(5, 9)]), Agent([call(4, 7)]), call(10, 11)])
)  # of indices 0; 1, 3; 2; 4


def test_a_session_is_played_by_its_answers_whatever_their_order() -> None:
    played = PlayedSession(REQUESTS)
    assert played.begins() == []
    assert played.ended(0) == [(1, 1), (2, 2)]
    assert played.ended(2) == [], "the last call needs the other sub-agent too"
    assert played.ended(1) == [(3, 1)]
    assert played.ended(3) == [(4, 1)]
    assert not played.over
    assert played.ended(4) == []
    assert played.over
    beginning_together = session_requests(Agent([call(0, 3), call(2, 4)]))
    assert PlayedSession(beginning_together).begins() == [(1, 2)]
