"""The PostgreSQL server of the tests. The first test that needs one starts it, for all workers; scripts/test stops it.

`TOBAN_TEST_POSTGRES` names a server to use instead.
"""

from __future__ import annotations

import fcntl
import functools
import glob
import os
import pwd
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
"""The parameters of a fixture that runs its tests on each kind of database."""

# Read once: tests change the environment.
_GIVEN = os.environ.get("TOBAN_TEST_POSTGRES", "")
_WORK = os.environ.get("TOBAN_TEST_WORK", "")
_INSTALLED = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/pgsql/bin",
)


@contextmanager
def postgres_schema() -> Iterator[str]:
    """The URL of a new schema, dropped at the end. Skips the test if there is no server."""
    name = f"test_{uuid.uuid4().hex}"
    url = _server()
    _execute(url, f"CREATE SCHEMA {name}")
    try:
        yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"
    finally:
        _execute(url, f"SET client_min_messages TO warning; DROP SCHEMA {name} CASCADE")


def _execute(url: str, sql: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode())


def _server() -> str:
    url, missing = _found()
    if missing:
        pytest.skip(missing)
    return url


@functools.cache
def _found() -> tuple[str, str]:
    """The URL of the server, or why there is none."""
    if _GIVEN:
        return _GIVEN, ""
    if not _WORK:
        return "", "no PostgreSQL: run scripts/test, or set TOBAN_TEST_POSTGRES"
    programs = _programs()
    if not programs:
        return "", "no PostgreSQL server is installed (Debian: apt install postgresql)"
    user = _user()
    if user is None:
        return "", "PostgreSQL does not run as root, and there is no user postgres or nobody"
    directory = f"{_WORK}/pg"
    with open(f"{directory}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(f"{directory}/started"):
            _start(directory, programs, user)
    return f"postgresql:///postgres?host={directory}&user=toban", ""


def _programs() -> str:
    """The directory of the newest server's programs, or nothing."""
    on_path = os.path.dirname(shutil.which("initdb") or "")
    found = [each for pattern in _INSTALLED for each in glob.glob(pattern)] + [on_path]
    usable = [each for each in found if os.access(f"{each}/initdb", os.X_OK) and os.access(f"{each}/postgres", os.X_OK)]
    return max(usable, key=_version, default="")


def _version(programs: str) -> int:
    # "postgres (PostgreSQL) 15.9 (Debian …)", "postgres (PostgreSQL) 17beta1"
    printed = subprocess.run([f"{programs}/postgres", "--version"], capture_output=True, text=True).stdout
    number = re.search(r"\d+", printed)
    return int(number[0]) if number else 0


def _user() -> pwd.struct_passwd | None:
    """The user to run the server as, which refuses to run as root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    known = {each.pw_name: each for each in pwd.getpwall()}
    return known.get("postgres") or known.get("nobody")


def _start(directory: str, programs: str, user: pwd.struct_passwd) -> None:
    """Starts a server that listens on a unix socket only and syncs nothing: its data is thrown away."""
    shutil.rmtree(directory, ignore_errors=True)
    os.mkdir(directory, 0o700)
    os.chown(directory, user.pw_uid, user.pw_gid)
    options = f"-k {directory} -c listen_addresses= -c fsync=off -c full_page_writes=off"
    data = f"{directory}/data"
    commands = [
        [
            "initdb",
            "-D",
            data,
            "-U",
            "toban",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ],
        ["pg_ctl", "-D", data, "-l", f"{data}/log", "-w", "-t", "60", "-o", options, "start"],
    ]
    root = os.geteuid() == 0
    for program, *arguments in commands:
        with open(f"{_WORK}/{program}.log", "w+") as log:
            done = subprocess.run(
                [f"{programs}/{program}", *arguments],
                user=user.pw_uid if root else None,
                group=user.pw_gid if root else None,
                extra_groups=[] if root else None,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            if done.returncode != 0:
                log.seek(0)
                raise RuntimeError(f"cannot start PostgreSQL: {program}: {log.read()[-2000:]}")
    with open(f"{directory}/started", "w"):
        pass
