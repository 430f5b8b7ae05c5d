"""The entry point of a shim: parked after its fork, until the daemon hands it an attempt; then it takes the claim.

A parked shim exits if the daemon disconnects before handing it work.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    raise ImportError("the POSIX shim needs fork")

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from toband import failpoints
from toband.supervise.shim import cgroups, frames, process_title, process_tree, secret_files
from toband.supervise.shim.attempt_file import AttemptFile, claim, now_us
from toband.supervise.shim.shim import KILL_PATIENCE, START_PATIENCE, Shim, got, oom_kills
from toband.supervise.shim.step_masks import StepMasks, masker_of

CLAIMED = b"claimed"
EXIT_DONE = 0
EXIT_NOT_MINE = 3
EXIT_BROKEN = 4
REHEARSE_AFTER = 2
"""Milliseconds. A shim that is used sooner has no time to prepare."""


def main(sock: socket.socket, boot_id: str) -> NoReturn:
    """Runs in a fresh fork of the spawner: waits for its one bootstrap message, then supervises the attempt."""
    code = EXIT_BROKEN
    try:
        wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        process_tree.become_subreaper()
        process_title.set_title("parked")
        me = os.getpid()
        seen = process_tree.stat_of(me)
        facts = {
            "format": frames.FORMAT,
            "pid": me,
            "start": seen[1] if seen else 0,
            "boot_id": boot_id,
            "seal": os.urandom(8).hex(),
        }
        kills_before = oom_kills()
        boot = _parked(sock, wake, facts)
        if boot is None:
            os._exit(EXIT_NOT_MINE if got else EXIT_DONE)
        boot["seal"] = facts["seal"]
        boot["oom_kills"] = kills_before
        process_title.set_title(boot.get("title", ""))
        # Before the claim: by this name a daemon finds the shim of a claim whose file is gone.
        process_title.set_short_name(process_title.short_name(boot["token"]))
        masker = masker_of(boot)
        command = boot.get("command", "")
        facts |= {
            "attempt": boot["attempt"],
            "token": boot["token"],
            "command": command if masker is None else masker.mask_text(command),
            **_duty(boot),
        }
        failpoints.hit("shim.before_claim")
        if boot.get("cgroup"):
            _make_cgroup(boot, facts)
        fd = claim(boot["dir"], boot["file"], facts, boot.get("second", ""))
        if fd is None:
            if boot.get("cgroup"):
                cgroups.remove(boot["cgroup"]["path"])
            os._exit(EXIT_NOT_MINE)
        failpoints.hit("shim.claimed")
        # The step may start from here on: a connected daemon knows it, even if the file is lost.
        with contextlib.suppress(OSError):
            sock.send(CLAIMED)
        secret_files.take_material(boot)
        file = AttemptFile(fd, boot.get("log_limit"), boot.get("logs_full", ""))
        Shim(boot, file, wake, None if masker is None else StepMasks(masker)).run()
        # The end record is on disk. Closing the socket tells the daemon sooner than the exit of this process.
        sock.close()
        code = EXIT_DONE
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _duty(boot: dict[str, Any]) -> dict[str, Any]:
    """The deadlines of the step on the clock of this boot, for a daemon that is started later."""
    ending = float(boot.get("grace", 10.0)) + float(boot.get("kill_patience", KILL_PATIENCE))
    facts: dict[str, Any] = {"ending": ending}
    if boot.get("timeout") is not None:
        facts["over"] = time.monotonic() + START_PATIENCE + boot["timeout"]
        facts["timeout_kind"] = boot.get("timeout_kind", "timeout")
    return facts


def _make_cgroup(boot: dict[str, Any], facts: dict[str, Any]) -> None:
    """Made before the claim, which names it: recovery then knows which cgroup to end.

    Without a cgroup the step starts anyway, unless its limits need one.
    """
    cgroup = boot["cgroup"]
    # The descriptor stays open: its lock shows that the cgroup has a living shim.
    if cgroups.make(cgroup["path"]) is not None:
        facts |= {"cgroup": cgroup["path"], "cgroup_ns": cgroup["namespace"]}
        return
    boot["cgroup"] = None
    if (boot.get("limits") or {}).get("cgroup"):
        boot["refused"] = f"cannot start {boot['argv'][0]}: cannot create the cgroup that enforces its limits"


def _parked(sock: socket.socket, wake: int, facts: dict[str, Any]) -> dict[str, Any] | None:
    """The bootstrap message; None if the daemon disconnected or a signal came before it."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.register(wake, select.POLLIN)
    if not poll.poll(REHEARSE_AFTER) and not failpoints.armed():
        _rehearse(facts)
    while True:
        poll.poll()
        # The daemon sends the message before any signal: check for the message once more after a signal.
        told = signal.SIGTERM in got
        if select.select([sock], [], [], 0)[0]:
            break
        if told:
            return None
        os.read(wake, 4096)
    try:
        _, fds, _, _ = socket.recv_fds(sock, 16, 1)
    except ConnectionError:
        return None
    if not fds:
        return None
    try:
        message = frames.pread(fds[0], os.fstat(fds[0]).st_size, 0)
    finally:
        os.close(fds[0])
    boot: dict[str, Any] = json.loads(message)
    return boot


def _rehearse(facts: dict[str, Any]) -> None:
    """Touches the memory that an attempt will use: after a fork the first write to each page copies it."""
    frames.encode_json(frames.CLAIM, now_us(), facts)
    json.loads('{"argv": ["a"], "env": {"PATH": "/bin"}, "timeout": null, "grace": 10.0}')
    reader, writer = os.pipe()
    scratch = os.memfd_create("toban-rehearsal")
    rehearsal = Shim({"argv": ["a"], "env": {}, "seal": ""}, AttemptFile(scratch), reader)
    rehearsal.rehearse()
    for fd in (scratch, reader, writer):
        os.close(fd)
