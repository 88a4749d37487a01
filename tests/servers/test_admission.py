"""Slots and the queue, and what happens to a slot when its request is cancelled."""

import asyncio

import pytest

from servers.admission import Admission, QueueFull, Slot


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_runs_up_to_capacity_and_lets_the_rest_wait_in_order() -> None:
    admission = Admission(capacity=2, queue_size=10)
    order: list[int] = []

    async def visit(number: int) -> Slot:
        slot = await admission.enter()
        order.append(number)
        return slot

    visits = [asyncio.create_task(visit(number)) for number in range(5)]
    await settle()
    assert (order, admission.running, admission.waiting) == ([0, 1], 2, 3)
    for released in range(5):
        (await visits[released]).release()
        await settle()
    assert order == [0, 1, 2, 3, 4]
    assert (admission.running, admission.waiting) == (0, 0)


async def test_a_full_queue_refuses_at_once() -> None:
    admission = Admission(capacity=1, queue_size=1)
    first = await admission.enter()
    second = asyncio.create_task(admission.enter())
    await settle()
    with pytest.raises(QueueFull) as refusal:
        await admission.enter()
    assert refusal.value.retry_after == 1  # nothing has ended yet, so there is nothing to estimate from
    first.release()
    (await second).release()


async def test_requests_that_are_being_prepared_count_as_waiting() -> None:
    """Otherwise all of a burst would be tokenised, only for most of them to be refused."""
    admission = Admission(capacity=1, queue_size=1)
    with admission.preparing():
        assert admission.waiting == 1
        with admission.preparing():
            for refused in (admission.refuse_if_full, admission.preparing().__enter__):
                with pytest.raises(QueueFull, match="2 waiting"):
                    refused()
        first = await admission.enter()  # out of its preparation, into a slot
        with pytest.raises(QueueFull):
            admission.refuse_if_full()
    assert (admission.running, admission.waiting) == (1, 0)
    admission.refuse_if_full()
    first.release()


async def test_leaving_the_queue_makes_room_for_others() -> None:
    admission = Admission(capacity=1, queue_size=2)
    first = await admission.enter()
    leaver, stayer = asyncio.create_task(admission.enter()), asyncio.create_task(admission.enter())
    await settle()
    leaver.cancel()
    await settle()
    assert admission.waiting == 1
    first.release()
    (await stayer).release()
    assert admission.running == 0


async def test_a_slot_granted_to_a_request_that_is_cancelled_at_that_moment_is_passed_on() -> None:
    admission = Admission(capacity=1, queue_size=2)
    first = await admission.enter()
    leaver, next_one = asyncio.create_task(admission.enter()), asyncio.create_task(admission.enter())
    await settle()
    first.release()  # the slot is the leaver's now, though it has not run yet
    leaver.cancel()
    (await next_one).release()
    assert leaver.cancelled()
    assert (admission.running, admission.waiting) == (0, 0)


async def test_releasing_twice_frees_one_slot() -> None:
    admission = Admission(capacity=2, queue_size=0)
    one, _ = await admission.enter(), await admission.enter()
    one.release()
    one.release()
    assert admission.running == 1


@pytest.mark.parametrize(
    ("capacity", "waiting", "service_time", "expected"),
    [
        pytest.param(1, 3, 2.0, 8, id="three ahead and oneself, two seconds each, one at a time: eight"),
        pytest.param(4, 3, 2.0, 2, id="four at a time is four times as fast"),
        pytest.param(8, 0, 0.1, 1, id="never less than a second"),
        pytest.param(1, 9, 1000.0, 120, id="never more than two minutes"),
    ],
)
async def test_retry_after_is_the_line_ahead_times_the_service_time(
    capacity: int, waiting: int, service_time: float, expected: int
) -> None:
    now = 0.0
    admission = Admission(capacity, queue_size=waiting, clock=lambda: now)
    slot = await admission.enter()
    now = service_time
    slot.release()
    _ = [await admission.enter() for _ in range(capacity)]
    line = [asyncio.create_task(admission.enter()) for _ in range(waiting)]
    await settle()
    with pytest.raises(QueueFull) as refusal:
        await admission.enter()
    assert refusal.value.retry_after == expected
    for visit in line:
        visit.cancel()


async def test_a_larger_capacity_lets_waiting_requests_in() -> None:
    admission = Admission(capacity=1, queue_size=5)
    await admission.enter()
    line = [asyncio.create_task(admission.enter()) for _ in range(3)]
    await settle()
    admission.resize(3)
    await settle()
    assert [visit.done() for visit in line] == [True, True, False]
    assert (admission.running, admission.waiting) == (3, 1)
    line[2].cancel()


async def test_a_smaller_capacity_takes_effect_as_slots_come_back() -> None:
    admission = Admission(capacity=3, queue_size=5)
    slots = [await admission.enter() for _ in range(3)]
    waiting = asyncio.create_task(admission.enter())
    await settle()
    admission.resize(1)
    slots[0].release()
    slots[1].release()
    await settle()
    assert (admission.running, waiting.done()) == (1, False)
    slots[2].release()
    (await waiting).release()
    assert admission.running == 0
