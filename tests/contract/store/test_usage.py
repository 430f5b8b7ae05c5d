"""Resource usage of attempts."""

from __future__ import annotations

from dataclasses import replace

from contract.builders import later, launched, save, stored_run, with_workflow
from toband.domain.attempt_model import Sample, Usage
from toband.ports import Store


def usage(count: int = 3) -> Usage:
    samples = tuple(
        Sample(
            at=later(number),
            cpu=0.125 * number,
            rss_bytes=1 << (20 + number),
            processes=number + 1,
            read_bytes=None if number == 0 else number,
            written_bytes=number * 1000,
        )
        for number in range(count)
    )
    return Usage(samples=samples, peak_rss_bytes=1 << 40, peak_processes=9)


async def attempt_of(store: Store) -> str:
    await with_workflow(store)
    run = await stored_run(store)
    run = await save(store, run, launched(run, "s0"))
    attempt = run.steps["s0"].attempt
    assert attempt is not None
    return attempt.id


async def test_samples_come_back_as_they_were(store: Store) -> None:
    attempt = await attempt_of(store)
    assert await store.usage_of([attempt]) == {}
    await store.save_usage({attempt: usage()})
    assert await store.usage_of([attempt]) == {attempt: usage()}


async def test_a_longer_series_takes_the_place_of_a_shorter(store: Store) -> None:
    attempt = await attempt_of(store)
    await store.save_usage({attempt: usage(2)})
    longer = replace(usage(5), peak_processes=40)
    await store.save_usage({attempt: longer})
    assert await store.usage_of([attempt]) == {attempt: longer}


async def test_an_attempt_that_is_gone_is_passed_over(store: Store) -> None:
    attempt = await attempt_of(store)
    gone = "01a1e246-0000-72ef-a5be-000000000000"
    await store.save_usage({gone: usage(), attempt: usage()})
    assert await store.usage_of([gone, attempt]) == {attempt: usage()}
