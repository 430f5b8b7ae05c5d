"""How many calls are handled at once, and which are refused."""

from __future__ import annotations

import asyncio

import pytest

from toband.api.call_limits import _BY_NAME, ALL_SERVED, LIMITS, Lane, Lanes, Limit, TooManyCallsError


@pytest.mark.parametrize(
    "method",
    [f"/{service.full_name}/{method.name}" for service in ALL_SERVED for method in service.methods],
)
def test_every_method_has_a_lane(method: str) -> None:
    assert method.rpartition("/")[2] in _BY_NAME


def test_no_two_services_name_a_method_alike_and_streams_are_streams() -> None:
    methods = [method for service in ALL_SERVED for method in service.methods]
    assert len({method.name for method in methods}) == len(methods)
    streams = {method.name for method in methods if method.server_streaming}
    assert streams == {name for name, lane in _BY_NAME.items() if lane == "stream"}


def test_a_method_of_the_future_counts_as_a_slow_one() -> None:
    lanes = Lanes()
    assert lanes.of("/toban.v1.RunService/Fancy") is lanes.of("/toban.v1.SystemService/Doctor")


async def test_calls_wait_in_order_and_the_rest_are_refused() -> None:
    lane = Lane("read", Limit(1, 2))
    await lane.enter()
    entered: list[str] = []

    async def call(name: str) -> None:
        await lane.enter()
        entered.append(name)

    first, second = asyncio.create_task(call("first")), asyncio.create_task(call("second"))
    await asyncio.sleep(0)
    with pytest.raises(TooManyCallsError, match="1 read calls are being handled and 2 wait"):
        await lane.enter()
    lane.leave()
    await first
    assert entered == ["first"]
    lane.leave()
    await second
    lane.leave()
    await lane.enter()


async def test_a_call_that_gives_up_leaves_its_turn_to_the_next() -> None:
    lane = Lane("read", Limit(1, 1))
    await lane.enter()
    gone = asyncio.create_task(lane.enter())
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    waiting = asyncio.create_task(lane.enter())
    await asyncio.sleep(0)
    lane.leave()
    await waiting


async def test_streams_do_not_wait() -> None:
    lane = Lane("stream", Limit(1, 0))
    await lane.enter()
    with pytest.raises(TooManyCallsError, match="1 streams are open"):
        await lane.enter()
    lane.leave()
    await lane.enter()


async def test_identities_take_turns() -> None:
    lane = Lane("read", Limit(1, 10))
    await lane.enter("a")
    entered: list[str] = []

    async def call(who: str) -> None:
        await lane.enter(who)
        entered.append(who)
        lane.leave(who)

    tasks = [asyncio.create_task(call(who)) for who in ("a", "a", "a", "a", "b", "b", "c")]
    await asyncio.sleep(0)
    lane.leave("a")
    await asyncio.gather(*tasks)
    assert entered == ["a", "b", "c", "a", "b", "a", "a"]


async def test_an_identity_cannot_take_all_slots() -> None:
    lane = Lane("read", Limit(4, 10), Limit(3, 2))
    for _ in range(3):
        await lane.enter("a")
    waiting = [asyncio.create_task(lane.enter("a")) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(TooManyCallsError, match="3 read calls of this identity are being handled and 2 wait"):
        await lane.enter("a")
    # The last slot is for others, and they do not wait behind the calls of `a`.
    await asyncio.wait_for(lane.enter("b"), 5)
    lane.leave("b")
    assert not any(task.done() for task in waiting)
    for _ in range(3):
        lane.leave("a")
    await asyncio.gather(*waiting)
    for _ in range(2):
        lane.leave("a")
    assert not lane._active
    assert not lane._waiting


async def test_streams_of_one_identity_are_limited() -> None:
    lane = Lanes(calls=10, streams=2).of("/x/WatchRun")
    await lane.enter("a")
    await lane.enter("a")
    with pytest.raises(TooManyCallsError, match="2 streams of this identity are open"):
        await lane.enter("a")
    await lane.enter("b")
    lane.leave("a")
    await lane.enter("a")


async def test_a_call_that_gives_up_just_when_it_has_its_turn_passes_it_on() -> None:
    lane = Lane("read", Limit(1, 5))
    await lane.enter("a")
    first, second = asyncio.create_task(lane.enter("b")), asyncio.create_task(lane.enter("c"))
    await asyncio.sleep(0)
    lane.leave("a")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await asyncio.wait_for(second, 5)


def test_control_calls_have_a_lane_of_their_own() -> None:
    lanes = Lanes()
    others = {lanes.of(f"/x/{name}") for name in ("GetRun", "StartRun", "Doctor", "WatchRun")}
    assert len(others) == len(LIMITS) - 1
    for name in ("CancelRun", "GetInfo", "Check"):
        assert lanes.of(f"/x/{name}") not in others
