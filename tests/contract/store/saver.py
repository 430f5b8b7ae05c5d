"""Started by a test: saves changes of a run until it is killed, and prints each acknowledged one."""

from __future__ import annotations

import asyncio
import sys

from contract.builders import save, touched
from toband.store import SqlStore


async def main(url: str, run_id: str) -> None:
    store = SqlStore(url)
    await store.open()
    run = await store.get_run(run_id)
    assert run is not None
    while True:
        run = await save(store, run, touched(run, {}, error=f"change {run.sequence + 1}"))
        print(run.sequence, flush=True)


asyncio.run(main(*sys.argv[1:]))
