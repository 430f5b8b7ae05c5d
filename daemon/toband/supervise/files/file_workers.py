"""Threads for long work on files: fair to every run, stopped at once, never waited for at shutdown.

A few jobs work at a time. A job that has worked for a moment while others wait gives up its slot and waits for its next
turn; turns rotate from run to run. So a run with terabytes to copy costs the others a slice, and not a thread. A job
that is stuck in the kernel, as with a network file system that does not answer, loses its slot too.

The threads are daemon threads: the interpreter does not wait for them when it exits.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from toband.ports import StoppedError

SLOTS = 4
SLICE = 0.025
"""Seconds that a job works before it yields."""
STUCK = 10.0
"""Seconds without progress after which a job is stuck, or without a turn after which it has waited too long."""
_BEGUN = 64
_BEGUN_OF_RUN = 4
"""Limits on jobs that have begun and not ended: each has a thread, whether it has a slot or not."""

T = TypeVar("T")


class Turn:
    """The checks that a job makes while it works; either may block."""

    __slots__ = ("_job", "_workers")

    def __init__(self, workers: Workers, job: _Job) -> None:
        self._workers = workers
        self._job = job

    def go_on(self) -> bool:
        return self._workers.go_on(self._job)

    def spend(self, size: int) -> None:
        """Counts bytes read for the run; blocks while the run is above its rate."""
        self._workers.spend(self._job, size)


class _Job:
    __slots__ = (
        "answer",
        "begun",
        "holds",
        "loop",
        "place",
        "run",
        "seen",
        "since",
        "stopped",
        "turn",
        "waits",
        "work",
    )

    def __init__(
        self,
        run: str,
        place: str,
        work: Callable[[Turn], Any],
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[Any],
    ) -> None:
        self.run = run
        self.place = place
        self.work = work
        self.loop = loop
        self.answer = answer
        self.begun = self.holds = self.stopped = self.waits = False
        self.since = self.seen = time.monotonic()
        self.turn = threading.Event()


class _Line:
    """The waiting jobs of one run: those that have not begun, and those that yielded."""

    __slots__ = ("fresh", "paused")

    def __init__(self) -> None:
        self.fresh: deque[_Job] = deque()
        self.paused: deque[_Job] = deque()

    def add(self, job: _Job) -> None:
        job.waits, job.since = True, time.monotonic()
        (self.paused if job.begun else self.fresh).append(job)

    def take(self, *, may_begin: bool) -> _Job | None:
        """The job that has waited longest."""
        fresh = self.fresh if may_begin else ()
        if fresh and (not self.paused or self.fresh[0].since <= self.paused[0].since):
            job = self.fresh.popleft()
        elif self.paused:
            job = self.paused.popleft()
        else:
            return None
        job.waits = False
        return job

    def __len__(self) -> int:
        return len(self.fresh) + len(self.paused)


class Workers:
    """`rate`: bytes per second that all jobs of one run together may read; None: unlimited."""

    def __init__(self, name: str, slots: int = SLOTS, rate: int | None = None) -> None:
        self._name = name
        self._rate = rate
        # For each run, when all that it has read would have been read at its rate.
        self._paid: dict[str, float] = {}
        self._free = self._slots = slots
        self._lock = threading.Lock()
        self._closed = False
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        self._waiting = 0
        # Each key belongs to the job at work in that place; the others wait in order of arrival.
        self._places: dict[str, deque[_Job]] = {}
        self._active: set[_Job] = set()
        self._begun: Counter[str] = Counter()
        self._handed: SimpleQueue[_Job | None] = SimpleQueue()
        self._idle = 0

    @property
    def busy(self) -> bool:
        return bool(self._active or self._waiting)

    async def do(self, run: str, place: str, work: Callable[[Turn], T]) -> T:
        """Runs the work; only one at a time for each `place`. Cancelling the call stops the work.

        The work often asks whether to continue, and may block there. If the answer is no, it raises StoppedError.
        """
        answer = self.post(run, place, work)
        try:
            return await answer[1]
        except asyncio.CancelledError:
            self._stop(answer[0])
            raise

    def post(self, run: str, place: str, work: Callable[[Turn], T]) -> tuple[_Job, asyncio.Future[T]]:
        loop = asyncio.get_running_loop()
        job = _Job(run, place, work, loop, loop.create_future())
        with self._lock:
            if self._closed:
                raise StoppedError
            if place in self._places:
                self._places[place].append(job)
            else:
                self._enter(job)
            self._dispatch()
        return job, job.answer

    def close(self) -> None:
        """Stops all jobs, without waiting."""
        with self._lock:
            self._closed = True
            left = [job for line in self._lines.values() for job in line.fresh]
            left += [job for waiting in self._places.values() for job in waiting]
            for job in (*left, *self._active):
                job.stopped = True
                job.turn.set()
            self._lines.clear()
            self._places.clear()
            self._waiting = 0
            for _ in range(self._idle):
                self._handed.put(None)
        for job in left:
            if not job.answer.done():
                job.answer.set_exception(StoppedError())

    def trouble(self) -> str:
        """A description of the jobs that make no progress; slots of stuck jobs are given to others."""
        now = time.monotonic()
        with self._lock:
            stuck = [job for job in self._active if not job.waits and now - job.seen > STUCK]
            for job in stuck:
                self._release(job)
            self._dispatch()
            self._paid = {run: paid for run, paid in self._paid.items() if paid > now - 1.0}
            waits = [
                now - line.fresh[0].since
                for line in self._lines.values()
                if line.fresh and now - line.fresh[0].since > STUCK
            ]
        found = []
        if stuck:
            longest = max(now - job.seen for job in stuck)
            runs = sorted({job.run for job in stuck})
            found.append(
                f"{len(stuck)} file operations have made no progress for up to {longest:.0f} s "
                f"(run {', '.join(runs[:3])}{'…' if len(runs) > 3 else ''})"
            )
        if waits:
            found.append(f"others have waited for their turn for up to {max(waits):.0f} s")
        return "; ".join(found)

    # -- turns; all with the lock

    def _enter(self, job: _Job) -> None:
        if job.place:
            self._places.setdefault(job.place, deque())
        self._line_up(job)

    def _line_up(self, job: _Job) -> None:
        self._lines.setdefault(job.run, _Line()).add(job)
        self._waiting += 1

    def _dispatch(self) -> None:
        while self._free > 0 and (job := self._next()) is not None:
            self._waiting -= 1
            if job.stopped:
                if not job.begun:
                    self._leave_place(job)
                continue
            self._free -= 1
            job.holds = True
            job.since = job.seen = time.monotonic()
            if job.begun:
                job.turn.set()
            else:
                self._begin(job)

    def _next(self) -> _Job | None:
        for _ in range(len(self._lines)):
            run, line = self._lines.popitem(last=False)
            may_begin = len(self._active) < _BEGUN and self._begun[run] < _BEGUN_OF_RUN
            job = line.take(may_begin=may_begin)
            if line:
                self._lines[run] = line
            if job is not None:
                return job
        return None

    def _begin(self, job: _Job) -> None:
        job.begun = True
        self._active.add(job)
        self._begun[job.run] += 1
        if self._idle:
            self._idle -= 1
            self._handed.put(job)
            return
        try:
            threading.Thread(target=self._work, args=(job,), name=self._name, daemon=True).start()
        except RuntimeError:
            self._over(job)
            _tell(job, None, OSError(errno.EAGAIN, "no thread can be started for it"))

    def _release(self, job: _Job) -> None:
        if job.holds:
            job.holds = False
            self._free += 1

    def _over(self, job: _Job) -> None:
        self._release(job)
        self._active.discard(job)
        self._begun[job.run] -= 1
        if not self._begun[job.run]:
            del self._begun[job.run]
        self._leave_place(job)

    def _leave_place(self, job: _Job) -> None:
        waiting = self._places.get(job.place)
        if waiting is None:
            return
        while waiting:
            following = waiting.popleft()
            if not following.stopped:
                self._line_up(following)
                return
        del self._places[job.place]

    # -- in the threads

    def _work(self, job: _Job | None) -> None:
        while job is not None:
            result, error = None, None
            try:
                result = job.work(Turn(self, job))
            except BaseException as raised:
                error = raised
            with self._lock:
                self._over(job)
                stay = self._idle < self._slots and not self._closed
                self._idle += stay
                self._dispatch()
            _tell(job, result, error)
            result = error = job = None
            if stay:
                job = self._handed.get()

    def use(self, rate: int | None) -> None:
        """Replaces the rate."""
        with self._lock:
            self._rate = rate

    def go_on(self, job: _Job) -> bool:
        job.seen = now = time.monotonic()
        if job.holds and not job.stopped and (not self._waiting or now - job.since < SLICE):
            return True
        return self._give_way(job)

    def spend(self, job: _Job, size: int) -> None:
        with self._lock:
            if self._rate is None:
                return
            now = time.monotonic()
            # A run that has read less than its rate allows may exceed it for a second.
            paid = max(self._paid.get(job.run, 0.0), now - 1.0) + size / self._rate
            self._paid[job.run] = paid
            if paid <= now or job.stopped:
                return
            self._release(job)
            job.turn.clear()
            job.waits = True
            self._dispatch()
        job.turn.wait(paid - now)
        job.waits = False
        self.go_on(job)

    def _give_way(self, job: _Job) -> bool:
        with self._lock:
            # A stopped job too: it cleans up without a slot.
            self._release(job)
            if not job.stopped:
                job.turn.clear()
                self._line_up(job)
            self._dispatch()
        if not job.stopped:
            job.turn.wait()
        job.seen = time.monotonic()
        return not job.stopped

    def _stop(self, job: _Job) -> None:
        with self._lock:
            job.stopped = True
            job.turn.set()
            self._dispatch()


def _tell(job: _Job, result: object, error: BaseException | None) -> None:
    def tell() -> None:
        if job.answer.done():
            return
        if error is None:
            job.answer.set_result(result)
        else:
            job.answer.set_exception(error)

    # The event loop is closed: the daemon exits without waiting for the job.
    with contextlib.suppress(RuntimeError):
        job.loop.call_soon_threadsafe(tell)
