"""Builds the web console. Run by scripts/build-console and when a wheel or an sdist is built; standard library only."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent))

from node_program import NodeError, find_node

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "client" / "console"
BUILT: Final = ROOT / "client" / "toban" / "gateway" / "static"
STAMP: Final = "sources.sha256"
# Directories of the sources that are made by tools.
MADE: Final = ("node_modules", ".node")
# Of what a browser loads for the first page, compressed.
FIRST_PAGE_LIMIT: Final = 500_000
SHOWN: Final = 40


class BuildError(Exception):
    """The console cannot be built; the text says why, and what to do."""


def main(words: Sequence[str]) -> int:
    try:
        if list(words) == ["--check"]:
            return check()
        if words:
            print("usage: scripts/build-console [--check]", file=sys.stderr)
            return 2
        build()
    except (BuildError, NodeError) as error:
        print(f"build-console: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def build() -> Path:
    """Builds the console, unless these sources were. Returns its directory. Raises BuildError and NodeError."""
    if is_current():
        return BUILT
    with _one_at_a_time("package.json"):
        if is_current():
            return BUILT
        began = time.monotonic()
        digest = sources_digest()
        node = find_node(SOURCES / ".node", say)
        install(node)
        say("building the web console")
        run(node, ["npx", "--no-install", "tsc", "--noEmit"])
        run(node, ["npx", "--no-install", "vite", "build", "--logLevel", "warn"])
        size = first_page_size()
        if size > FIRST_PAGE_LIMIT:
            raise BuildError(
                f"the first page loads {size:,} bytes compressed, more than {FIRST_PAGE_LIMIT:,}: load parts later"
            )
        (BUILT / STAMP).write_text(f"{digest}\n")
        say(f"built in {time.monotonic() - began:.0f} s; the first page loads {size / 1000:.0f} KB compressed")
    return BUILT


def check() -> int:
    node = find_node(SOURCES / ".node", say)
    install(node)
    codes = [
        call(node, ["npx", "--no-install", *command], sys.stdout.fileno())
        for command in (
            ["tsc", "--noEmit"],
            ["eslint", "."],
            ["prettier", "--check", "--log-level", "warn", "."],
            ["vitest", "run", "--reporter", "dot"],
        )
    ]
    return max(codes)


def is_current() -> bool:
    """Whether the built files are those of the sources. An sdist has both."""
    try:
        stamp = (BUILT / STAMP).read_text().strip()
    except OSError:
        return False
    return (BUILT / "index.html").is_file() and stamp == sources_digest()


def sources_digest() -> str:
    digest = hashlib.sha256()
    for directory, names, files in os.walk(SOURCES):
        names[:] = sorted(name for name in names if name not in MADE)
        for name in sorted(files):
            path = Path(directory, name)
            digest.update(f"{path.relative_to(SOURCES)}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def install(node: Path) -> None:
    """Installs the packages of the lock file, unless they are."""
    with _one_at_a_time("package-lock.json"):
        _install(node)


@contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Of all processes that use this file of the sources; the kernel releases the lock when one ends."""
    with open(SOURCES / name, "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(node: Path) -> None:
    lock = SOURCES / "package-lock.json"
    installed = SOURCES / "node_modules" / ".toban-lock"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    with suppress(OSError):
        if installed.read_text() == digest:
            return
    say("installing the packages of the web console")
    run(node, ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"])
    installed.write_text(digest)


def run(node: Path, command: Sequence[str]) -> None:
    """Runs a program of Node.js in the sources; shows the end of what it printed if it fails."""
    log = SOURCES / "node_modules" / ".toban-build.log"
    log.parent.mkdir(exist_ok=True)
    with open(log, "wb") as file:
        code = call(node, command, file.fileno())
    printed = log.read_text(errors="replace").splitlines() if log.exists() else []
    if code != 0:
        # npm says what is wrong first, a build says it last.
        shown = printed if len(printed) <= SHOWN else [*printed[: SHOWN // 2], "...", *printed[-SHOWN // 2 :]]
        for line in shown:
            print(f"    {line}", file=sys.stderr)
        raise BuildError(f"`{' '.join(command)}` failed in {SOURCES}, see above")


def call(node: Path, command: Sequence[str], output: int) -> int:
    environment = dict(os.environ, PATH=os.pathsep.join([str(node), os.environ.get("PATH", "")]), CI="true")
    program = shutil.which(command[0], path=environment["PATH"]) or command[0]
    done = subprocess.run(
        [program, *command[1:]],
        cwd=SOURCES,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.returncode


def first_page_size() -> int:
    """Compressed bytes of everything that the browser loads before it shows the first page."""
    manifest = json.loads((BUILT / "manifest.json").read_text())
    entry = next(name for name, chunk in manifest.items() if chunk.get("isEntry"))
    names, open_chunks = {"index.html"}, [entry, *first_pages(manifest)]
    seen: set[str] = set()
    while open_chunks:
        name = open_chunks.pop()
        if name in seen:
            continue
        seen.add(name)
        chunk = manifest[name]
        names |= {chunk["file"], *chunk.get("css", [])}
        open_chunks += chunk.get("imports", [])
    return sum(len(gzip.compress((BUILT / name).read_bytes())) for name in names)


def first_pages(manifest: dict[str, dict[str, object]]) -> list[str]:
    """The chunk of the overview, which people see first."""
    return [name for name in manifest if name.endswith("pages/overview/OverviewPage.tsx")]


def say(text: str) -> None:
    print(f"build-console: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
