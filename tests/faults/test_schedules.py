"""Random schedules, and a daemon that is killed, stopped and told wrong times meanwhile.

Every due time has one line in the ledger and one run at most, neither early nor late; what was missed is treated as its
policy says. When they were due is computed apart, see `timed.py`; docs/faults.md says what is compared.
"""

from __future__ import annotations

import math
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from faults import clock
from faults.settings import LONG, SEED, announce
from faults.timed import Spec, Timed, Version, random_spec
from faults.timed_checker import Ledger, check_timed, line_of, missing, started_of
from faults.timeline import Timeline
from helpers.daemon import Daemon
from helpers.waiting import wait_until
from toban.v1 import run_pb2, workflow_pb2

ACTIONS = 60 if LONG else 15
PAUSE = 6.0 if LONG else 1.0
FURTHEST = 120 if LONG else 40
FAILPOINTS = ("schedule.fired", "store.before_commit", "store.after_commit")
OVERLAPS = ("allow", "skip", "queue", "allow", "skip", "queue", "allow", "allow")

pytestmark = pytest.mark.skipif(bool(clock.why_not()), reason=f"no clock: {clock.why_not()}")


class Chaos:
    """Does things to a daemon that has schedules, and notes what it did and when."""

    def __init__(self, daemon: Daemon, dial: clock.Clock, rng: random.Random) -> None:
        self.ways: Counter[str] = Counter()
        self.workflows: list[Timed] = []
        self.time = Timeline(dial)
        self._daemon = daemon
        self._rng = rng
        self._deck: list[Callable[[], None]] = []

    # -- schedules

    def create(self, number: int, overlap: str) -> None:
        # Those that wait for each other must come to an end.
        run = {"allow": "true", "queue": "sleep 0.1"}.get(overlap, "sleep 3")
        workflow = Timed(name=f"w{number}", overlap=overlap, run=run)
        # Two of them now and then: they share the workflow's runs, and nothing else.
        specs = [self._spec() for _ in range(1 + (number % 4 == 0))]
        asked = time.time()
        self._daemon.apply(workflow.definition(specs))
        workflow.versions = [[] for _ in specs]
        self.workflows.append(workflow)
        for index, spec in enumerate(specs):
            self._note(workflow, index, spec, asked)

    def _spec(self) -> Spec:
        return random_spec(self._rng, time.time() + self.time.offset)

    def _note(self, workflow: Timed, index: int, spec: Spec, asked: float) -> None:
        now = time.time()
        versions = workflow.versions[index]
        if versions:
            versions[-1].end_asked, versions[-1].end_stored = asked, now
        made = Version(spec=spec, asked=asked, stored=now, end_asked=math.inf, end_stored=math.inf)
        made.delay = self._delay(workflow.name, index, spec)
        versions.append(made)

    def _delay(self, name: str, index: int, spec: Spec) -> float:
        """By how much it is put off: what people are told, and within what they asked for."""
        if not spec.jitter:
            return 0.0
        request = workflow_pb2.PreviewScheduleRequest(name=name, count=50)
        times = self._daemon.workflows.PreviewSchedule(request, timeout=20).due_times
        delays = {
            round((due.start_at.ToMicroseconds() - due.due_at.ToMicroseconds()) / 1e6, 5)
            for due in times
            if due.schedule_index == index
        }
        assert len(delays) <= 1, f"the jitter of {name}/{index} changes: {delays}"
        delay = delays.pop() if delays else 0.0
        assert 0 <= delay < spec.jitter
        return delay

    def _store(self, workflow: Timed, specs: list[Spec], note: str) -> None:
        definition = workflow_pb2.Definition(source=workflow.definition(specs, note))
        changed = workflow_pb2.Workflow(name=workflow.name, definition=definition)
        request = workflow_pb2.UpdateWorkflowRequest(workflow=changed)
        self._daemon.workflows.UpdateWorkflow(request, timeout=20)

    def _enable(self, workflow: Timed, enabled: bool) -> None:
        request = workflow_pb2.SetWorkflowEnabledRequest(name=workflow.name, enabled=enabled)
        self._daemon.workflows.SetWorkflowEnabled(request, timeout=20)

    # -- what happens

    def act(self) -> None:
        """The daemon serves before and after. Everything has its turn before anything has its next."""
        if not self._deck:
            self._deck = self._rng.sample(
                (self.kill, self.kill_at_failpoint, self.stop, self.freeze, self.jump, self.edit),
                counts=(2, 2, 1, 2, 3, 3),
                k=13,
            ) + self._rng.sample((self.touch, self.toggle), k=2)
            self._rng.shuffle(self._deck)
        way = self._deck.pop()
        self.ways[way.__name__] += 1
        way()
        self.live()

    def live(self) -> None:
        """A random time is what is wanted here."""
        signal.sigtimedwait([], self._rng.uniform(0.0, PAUSE))

    def kill(self) -> None:
        self.time.leave()
        self._daemon.kill()
        self._return()

    def kill_at_failpoint(self) -> None:
        """It comes back armed, and is not asked for anything until it has died."""
        self.time.leave()
        self._daemon.kill()
        name = self._rng.choice(FAILPOINTS)
        armed = f"{name}=kill@{self._rng.randint(1, 5)}"
        started = time.time()
        self._daemon.start({"TOBAN_FAILPOINTS": armed}, wait=False)
        process = self._daemon.process
        assert process is not None
        deadline = time.monotonic() + 1.5 + PAUSE / 2
        # It decides as long as it lives, so it was not away until it died.
        self.time.back(started)
        while process.poll() is None and time.monotonic() < deadline:
            signal.sigtimedwait([], 0.005)
        self.time.leave()
        self._daemon.kill()
        self._return()

    def stop(self) -> None:
        code = self._daemon.stop()
        self.time.leave()
        assert code == 0, f"the daemon cannot stop: {code}\n{self._daemon.tail()}"
        self._return()

    def freeze(self) -> None:
        assert self._daemon.process is not None
        self._daemon.process.send_signal(signal.SIGSTOP)
        self.time.leave()
        self.live()
        if self._rng.random() < 0.5:
            self.jump()
        self._daemon.process.send_signal(signal.SIGCONT)
        self.time.back()

    def _return(self) -> None:
        self.live()
        if self._rng.random() < 0.3:
            self.jump()
        started = time.time()
        self._daemon.start()
        self.time.back(started)

    def jump(self) -> None:
        """More often forward than back: what was decided once is not due again."""
        self.time.jump(self._rng.randint(-FURTHEST // 2, FURTHEST))

    def edit(self) -> None:
        """Another schedule takes the place of one."""
        workflow = self._rng.choice(self.workflows)
        specs = [versions[-1].spec for versions in workflow.versions]
        index = self._rng.randrange(len(specs))
        specs[index] = self._spec()
        asked = time.time()
        self._store(workflow, specs, "edited")
        self.time.wake()
        if specs[index] != workflow.versions[index][-1].spec:
            self._note(workflow, index, specs[index], asked)

    def touch(self) -> None:
        """Something else of the definition changes: its schedules go on."""
        workflow = self._rng.choice(self.workflows)
        specs = [versions[-1].spec for versions in workflow.versions]
        self._store(workflow, specs, f"touched {time.time()}")
        self.time.wake()

    def toggle(self) -> None:
        workflow = self._rng.choice(self.workflows)
        off_asked = time.time()
        self._enable(workflow, False)
        off = time.time()
        self.live()
        if self._rng.random() < 0.3:
            self.kill()
        on_asked = time.time()
        self._enable(workflow, True)
        workflow.disabled.append((off_asked, off, on_asked, time.time()))

    # -- afterwards

    def settle(self) -> Ledger:
        """All that was due so far is decided, and all runs have ended."""
        # The clock shows again what it showed at most, so that nothing waits for it.
        self.time.jump(max(offset for _, offset in self.time.offsets))
        self.touch()
        end = time.time()

        def all_decided() -> bool:
            return not missing(self.workflows, self.read(end), self.time, at_all=True)

        wait_until(all_decided, "not all that was due is decided")
        for workflow in self.workflows:
            asked = time.time()
            self._enable(workflow, False)
            workflow.disabled.append((asked, time.time(), math.inf, math.inf))
        for run in self._runs():
            self._daemon.wait_run(run.id, 120)
        return self.read(end)

    def read(self, end: float | None = None) -> Ledger:
        """The lines first: a run that is missing then has none."""
        end = time.time() if end is None else end
        lines = []
        for workflow in self.workflows:
            request = workflow_pb2.ListFiresRequest(workflow=workflow.name, page_size=1000)
            while True:
                page = self._daemon.workflows.ListFires(request, timeout=20)
                lines += [line_of(fire) for fire in page.fires]
                request.page_token = page.next_page_token
                if not page.next_page_token:
                    break
        runs = {run.id: started_of(run) for run in self._runs()}
        return Ledger(lines=lines, runs=runs, end=end)

    def _runs(self) -> list[run_pb2.Run]:
        found: list[run_pb2.Run] = []
        request = run_pb2.ListRunsRequest(page_size=1000)
        while True:
            page = self._daemon.runs.ListRuns(request, timeout=20)
            found += page.runs
            request.page_token = page.next_page_token
            if not page.next_page_token:
                return found


@pytest.mark.slow
@pytest.mark.timeout(180 + 20 * ACTIONS)
def test_every_due_time_is_decided_once(tmp_path: Path) -> None:
    announce("schedules")
    dial = clock.Clock(tmp_path)
    assert dial.works()
    daemon = Daemon(tmp_path / "s", environment=dial.environment)
    daemon.program = dial.program
    chaos = Chaos(daemon, dial, random.Random(f"{SEED} schedules"))
    try:
        daemon.start()
        for number, overlap in enumerate(OVERLAPS):
            chaos.create(number, overlap)
        for _ in range(ACTIONS):
            chaos.act()
        ledger = chaos.settle()
    finally:
        daemon.clear()
    defects = check_timed(chaos.workflows, ledger, chaos.time)
    outcomes = Counter(line.outcome for line in ledger.lines)
    folded = sum(len(run.missed) for run in ledger.runs.values())
    print(f"{dict(chaos.ways)}: {dict(outcomes)}, {len(ledger.runs)} runs, {folded} stood for")
    assert not defects, f"{len(defects)} defects:\n" + "\n".join([*defects[:20], str(chaos.time)])
    assert min(outcomes[name] for name in ("FIRED", "CAUGHT_UP")) >= 10, "too little happened"
