"""Work on a state directory while no daemon runs on it: `toban restore` and `toban system migrate-store` start it."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence

from toband import exit_codes
from toband.app.state_restore import RestoreError, StateRestore
from toband.app.store_move import StoreMove
from toband.config import ConfigError, load
from toband.ports import SecretKeyError, StoreError
from toband.state_archive.archive_format import ArchiveError
from toband.state_dir import StateDirError

_SHOW_EVERY = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    progress = ProgressLine(quiet=given.quiet)
    try:
        answer = given.work(given, progress)
    except (RestoreError, ArchiveError, StateDirError, StoreError, SecretKeyError) as error:
        progress.clear()
        print(f"toban: {error}", file=sys.stderr)
        return exit_codes.FAILED
    except ConfigError as error:
        for problem in error.problems:
            print(f"toban: {problem}", file=sys.stderr)
        return exit_codes.USAGE
    except OSError as error:
        progress.clear()
        where = f" ({error.filename})" if error.filename else ""
        print(f"toban: cannot {given.doing}: {error.strerror or error}{where}", file=sys.stderr)
        return exit_codes.FAILED
    progress.clear()
    print(json.dumps(answer))
    return 0


class ProgressLine:
    """One line on a terminal that is written again and again."""

    def __init__(self, *, quiet: bool) -> None:
        self._shows = sys.stderr.isatty() and not quiet
        self._shown_at = 0.0

    def __call__(self, doing: str, done: int, total: int) -> None:
        now = time.monotonic()
        if self._shows and now - self._shown_at >= _SHOW_EVERY:
            self._shown_at = now
            share = f"{100 * done / total:.0f} %" if total else ""
            print(f"\r\033[K{doing}: {done:,} of {total:,} {share}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shows and self._shown_at:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _restore(given: argparse.Namespace, progress: ProgressLine) -> dict[str, object]:
    restore = StateRestore(given.file, given.state_dir, given.database, progress)
    facts = restore.run()
    return {
        "state_dir": os.path.abspath(given.state_dir),
        "database": facts.database,
        "runs": restore.runs,
        "taken_at": facts.taken_at,
        "of": facts.described,
    }


def _migrate_store(given: argparse.Namespace, progress: ProgressLine) -> dict[str, object]:
    config = load(given.config, os.environ, {"state_dir": given.state_dir, "database": given.database})
    return StoreMove(config, given.to, progress).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="toban", allow_abbrev=False)
    parser.add_argument("--quiet", action="store_true")
    works = parser.add_subparsers(required=True)
    restore = works.add_parser("restore")
    restore.add_argument("file")
    restore.add_argument("--state-dir", required=True)
    restore.add_argument("--database", default="")
    restore.set_defaults(work=_restore, doing="restore the backup")
    move = works.add_parser("migrate-store")
    move.add_argument("--to", required=True)
    move.add_argument("--config")
    move.add_argument("--state-dir")
    move.add_argument("--database")
    move.set_defaults(work=_migrate_store, doing="move the database")
    return parser


if __name__ == "__main__":
    sys.exit(main())
