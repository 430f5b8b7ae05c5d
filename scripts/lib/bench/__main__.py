"""`scripts/bench`: proves that syncs are on, measures, prints the results and judges them."""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise SystemExit("bench: cannot measure: the daemon does not run on Windows yet")

import argparse
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from scripts.lib.bench import durability, machine, report, step_times
from scripts.lib.bench.durability import Proof
from scripts.lib.bench.errors import BenchError, NotDurableError
from scripts.lib.bench.measures import NAMES, Bench
from scripts.lib.bench.results import Result
from scripts.lib.bench.sizes import Sizes
from scripts.lib.bench.stored_runs import BYTES_EACH

EXIT_MISSED = 1
EXIT_NO_RESULT = 2
EXIT_NOT_DURABLE = 3

FORMAT = 1
MOST_ROUNDS = 50
PROFILE_RUNS = 3
_IN_MEMORY = ("tmpfs", "ramfs")


def main(arguments: Sequence[str]) -> int:
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _told_to_stop)
    try:
        # Resolved, as the kernel names the synced files.
        place = Path(given.dir).resolve()
        with tempfile.TemporaryDirectory(prefix="toban-bench.", dir=place) as name:
            return _bench(given, Path(name))
    except NotDurableError as error:
        print(f"bench: {error}", file=sys.stderr)
        return EXIT_NOT_DURABLE
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return EXIT_NO_RESULT
    except OSError as error:
        print(f"bench: cannot measure: {error}", file=sys.stderr)
        return EXIT_NO_RESULT
    except KeyboardInterrupt:
        return 130


def _bench(given: argparse.Namespace, work: Path) -> int:
    program = shutil.which("true")
    if program is None or shutil.which("xargs") is None:
        raise BenchError("cannot measure: `true` or `xargs` is missing")
    sizes = Sizes.quick() if given.quick else Sizes(rounds=5)
    if given.rounds is not None:
        sizes = replace(sizes, rounds=given.rounds)
    _check_place(work, sizes, given.quick)
    facts = machine.facts(work)
    if given.profile:
        times = step_times.of_chain(work, program, sizes.chain, 1 if given.quick else PROFILE_RUNS)
        if given.json:
            _print_json({"machine": facts, "profile": {"chain": times.to_json()}})
        else:
            print(report.step_times(facts, times))
        return 0
    _say("counting syncs")
    proof = durability.prove(work, program)
    results = Bench(work, program, sizes, _say).run(set(given.only or NAMES))
    judged = not given.quick
    if given.json:
        _print_json(_document(facts, sizes, proof, results, judged))
    else:
        print(report.table(facts, proof, results, judged=judged))
    return EXIT_MISSED if judged and _all_hold(results) is False else 0


def _document(
    facts: dict[str, Any], sizes: Sizes, proof: Proof, results: Sequence[Result], judged: bool
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "machine": facts,
        "sizes": asdict(sizes),
        "durability": asdict(proof),
        "results": {result.name: result.to_json() for result in results},
        "holds": _all_hold(results) if judged else None,
    }


def _all_hold(results: Sequence[Result]) -> bool:
    return all(result.holds is not False for result in results)


def _check_place(work: Path, sizes: Sizes, quick: bool) -> None:
    """Raises BenchError if the results would be meaningless, or the disk is too small."""
    kind = machine.filesystem(work)
    if kind in _IN_MEMORY and not quick:
        raise BenchError(
            f"cannot measure in {work.parent}: it is {kind}, where a sync costs nothing; "
            "name a directory on a disk with --dir"
        )
    needed = (sizes.rounds + 3) * sizes.log + sizes.stored * BYTES_EACH
    free = shutil.disk_usage(work).free
    if free < needed:
        raise BenchError(
            f"cannot measure in {work.parent}: it has {free // 1_000_000} MB left, and "
            f"{needed // 1_000_000} MB are needed; name another directory with --dir"
        )


def _print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2))


def _say(text: str) -> None:
    """Prints progress for the waiting user."""
    if sys.stderr.isatty():
        print(f"bench: {text}", file=sys.stderr)


def _told_to_stop(_signum: int, _frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(143)


def _rounds(text: str) -> int:
    rounds = int(text)
    if not 1 <= rounds <= MOST_ROUNDS:
        raise argparse.ArgumentTypeError(f"expected 1 to {MOST_ROUNDS}")
    return rounds


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures Toban against floors beside it; docs/bench.md says how to read it.",
        epilog="Exits with 0 if all targets hold, 1 if one was missed, 2 if there is no result, "
        "3 if the daemon does not sync what it must.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print everything, for programs")
    parser.add_argument("--rounds", type=_rounds, metavar="N", help="default: 5")
    parser.add_argument("--only", action="append", choices=NAMES, help="measure only this; may be repeated")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works; judges nothing")
    parser.add_argument("--profile", choices=["chain"], help="instead: show where the time of a step goes")
    parser.add_argument(
        "--dir",
        metavar="DIR",
        default=os.environ.get("TMPDIR", "/var/tmp"),  # noqa: S108 - files get names of mkdtemp
        help="where both sides keep their files, on a disk (default: $TMPDIR, or else /var/tmp)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
