"""From the recorded calls of an agent to what depends on what.

Nobody records why a call was made when it was. What the record does show: a call cannot have needed an answer that came
after it began. So within one agent a call depends on the latest calls that had ended before it began, and the time
between is the pause of a tool or a person. A sub-agent stands among its parent's calls like one long call: its first
calls depend on what had ended before it, and what follows depends on its last ones. Calls that overlap are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from loadtests.harness.schedule.arrivals import Second
from loadtests.harness.schedule.trace import TraceRequest


@dataclass(eq=False, slots=True)
class AgentCall:
    """`start` and `end` in seconds on the session's clock; `after` is found by `session_requests`."""

    start: Second
    end: Second
    request: TraceRequest
    after: list[AgentCall] = field(default_factory=list)
    awaited: bool = True


@dataclass(eq=False, slots=True)
class Agent:
    """Calls and sub-agents, at least one. Nothing waits for one that is not `awaited`: it runs in the background."""

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
    """An item of an agent as those that follow it see it: when it ran, and its last calls."""

    start: Second
    end: Second
    last: list[AgentCall]


def session_requests(agent: Agent) -> tuple[TraceRequest, ...]:
    """Its requests in the order in which they were sent, each with what it depends on and the pause before it."""
    _connect(agent, [])
    calls = sorted(agent.calls(), key=lambda call: (call.start, call.end))  # stable: what a call depends on comes first
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
    """Say of each call what it depends on, of the first ones `before`. Returns the last calls."""
    agent.items.sort(key=lambda item: (item.start, item.end))
    candidates: list[_Ended] = []
    for item in agent.items:
        earlier = _latest([one for one in candidates if one.end <= item.start])
        depends_on = [call for one in earlier for call in one.last] or before
        # What an earlier item made superfluous stays so: the candidates are few however long the session.
        candidates = [one for one in candidates if one.end > item.start or one in earlier]
        if isinstance(item, AgentCall):
            item.after, last = depends_on, [item]
        else:
            last = _connect(item, depends_on)
        if item.awaited:
            candidates.append(_Ended(item.start, item.end, last))
    return [call for one in _latest(candidates) for call in one.last]


def _latest(ended: Sequence[_Ended]) -> list[_Ended]:
    """Those that no other of them began after."""
    begins = max((one.start for one in ended), default=0.0)
    return [one for one in ended if one.end > begins or one.start == begins]
