"""The dependencies between the recorded calls of an agent.

Records lack the reason of a call, but a call cannot have needed an answer that came after it began. So within one
agent, a call depends on the latest calls that had ended before it began, and the time between is the pause of a tool
or a person. A sub-agent is like one long call of its parent: its first calls depend on the calls that had ended
before it, and the calls after it depend on its last ones. Calls that overlap are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from loadtests.harness.schedule.arrivals import Second
from loadtests.harness.schedule.trace import TraceRequest


@dataclass(eq=False, slots=True)
class AgentCall:
    """A call with its `start` and `end` in seconds of the session. `session_requests` fills `after`."""

    start: Second
    end: Second
    request: TraceRequest
    after: list[AgentCall] = field(default_factory=list)
    awaited: bool = True


@dataclass(eq=False, slots=True)
class Agent:
    """Calls and sub-agents, at least one. An agent that is not `awaited` runs in the background."""

    items: list[AgentCall | Agent]
    awaited: bool = True

    @property
    def start(self) -> Second:
        return min(item.start for item in self.items)

    @property
    def end(self) -> Second:
        return max(item.end for item in self.items)

    def calls(self) -> list[AgentCall]:
        return [call for item in self.items for call in ([item] if isinstance(item, AgentCall) else item.calls())]


@dataclass(eq=False, slots=True)
class _Ended:
    """An item of an agent that has ended: its times, and its last calls."""

    start: Second
    end: Second
    last: list[AgentCall]


def session_requests(agent: Agent) -> tuple[TraceRequest, ...]:
    """Return an agent's requests in the order of their sending, each with its dependencies and its pause."""
    _connect(agent, [])
    calls = sorted(agent.calls(), key=lambda call: (call.start, call.end))  # stable: dependencies come first
    index = {call: number for number, call in enumerate(calls)}
    begins = calls[0].start
    return tuple(
        replace(
            call.request,
            after=tuple(sorted(index[earlier] for earlier in call.after)),
            pause=call.start - max((earlier.end for earlier in call.after), default=begins),
        )
        for call in calls
    )


def _connect(agent: Agent, before: list[AgentCall]) -> list[AgentCall]:
    """Set the dependencies of each call; the first calls depend on those `before`. Return the last calls."""
    agent.items.sort(key=lambda item: (item.start, item.end))
    candidates: list[_Ended] = []
    for item in agent.items:
        earlier = _latest([ended for ended in candidates if ended.end <= item.start])
        depends_on = [call for ended in earlier for call in ended.last] or before
        # Items that are no longer the latest are dropped, so that a long session has few candidates.
        candidates = [ended for ended in candidates if ended.end > item.start or ended in earlier]
        if isinstance(item, AgentCall):
            item.after, last = depends_on, [item]
        else:
            last = _connect(item, depends_on)
        if item.awaited:
            candidates.append(_Ended(item.start, item.end, last))
    return [call for ended in _latest(candidates) for call in ended.last]


def _latest(items: Sequence[_Ended]) -> list[_Ended]:
    """Return the items after whose end no other item began."""
    last_start = max((item.start for item in items), default=0.0)
    return [item for item in items if item.end > last_start or item.start == last_start]
