from __future__ import annotations

from datetime import UTC, datetime

from doubles.clock import Clock
from doubles.sandbox import InlineSandbox
from toband.engine.definitions.applier import Applier
from toband.engine.definitions.definition_parser import DefinitionParser
from toband.engine.definitions.file_loader import FileContent, FileLoader, parse_quick
from toband.store import SqlStore

NOW = datetime(2026, 2, 1, tzinfo=UTC)
FILE = """\
name: early
description: x
schedule: {at: 2027-01-01T00:00:00Z}
steps: {only: {run: 'true'}}
---
name: late
description: x
blackout: ["0 0 * * */24h"]
schedule: ["0 3 * * *", {at: 2026-01-01T00:00:00Z}]
steps: {only: {run: 'true'}}
"""


async def test_what_will_not_start_anything_is_told_of_a_file(store: SqlStore) -> None:
    loader = FileLoader(Applier(store=store, clock=Clock(NOW), parser=DefinitionParser(InlineSandbox())))
    (file,), _ = parse_quick([FileContent(path="f.yaml", mark=None, data=FILE.encode())])
    kept = await loader.load(file, {})
    shut, over = kept.warnings
    assert shut.startswith("f.yaml:8:12: warning: blackout[0]: the windows leave no gap")
    assert over == (
        "f.yaml:6:1: warning: schedule[1]: 2026-01-01 00:00+00:00 is in the past: the schedule will never run"
    )
