"""Disturbs a daemon that has schedules, and records every action with its time."""

from __future__ import annotations

import json
import math
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc

from faults import clock, power
from faults.backfills import Past, ask, make_past
from faults.leftovers import end_all
from faults.pulse import Pulse
from faults.settings import LONG
from faults.timed import BLACKOUTS, REBOOT, Midnight, Spec, Timed, Version, random_spec
from faults.timed_checker import Ledger, Line, lines_of, missing
from faults.timed_runs import Started, Witnessed, runs_of, started_of
from faults.timeline import LATE, Timeline
from helpers.daemon import Daemon
from helpers.wait import wait_until
from toban.v1 import system_pb2, workflow_pb2

PAUSE = 4.0 if LONG else 1.0
FURTHEST = 120 if LONG else 40
FAILPOINTS = ("schedule.fired", "store.before_commit", "store.after_commit")
SETTLED = 600.0 if LONG else 300.0
"""Seconds within which all that was missed is decided: runs for each missed time come one after another."""
SECONDS = {"allow": 0.0, "queue": 0.1, "replace": 2.0, "skip": 3.0}
"""How long their steps take. Those that wait for each other must come to an end."""
BEFORE_MIDNIGHT = 25.0
"""Seconds of the clock at the beginning."""
CLOSED = (("50 1-59/2 * * * */5s", "Asia/Kathmandu"),)
"""When the daemon starts nothing at all, and in which zone."""


class Chaos:
    """Owns one daemon and the notes about it."""

    def __init__(
        self,
        directory: Path,
        rng: random.Random,
        *,
        database: str = "",
        disk: power.Disk | None = None,
    ) -> None:
        """`database` is where another one than SQLite is; the power of `disk` is cut when the machine goes down.

        Raises AssertionError if the clock of this machine cannot be made to jump.
        """
        dial = clock.Clock(directory)
        assert dial.works()
        ((closed, zone),) = CLOSED
        settings = {"TOBAN_BLACKOUT": closed, "TOBAN_TIMEZONE": zone}
        if database:
            settings["TOBAN_DATABASE"] = database
        self.ways: Counter[str] = Counter()
        self.workflows: list[Timed] = []
        self.booting: list[Timed] = []
        """Those that are due once per boot."""
        self.pasts: list[Past] = []
        """Those that are never due again, and are backfilled."""
        self.past_runs: dict[str, Started] = {}
        self.past_lines: list[Line] = []
        """What became of them."""
        self.time = Timeline(dial)
        self._midnight = Midnight.near(time.time(), directory)
        self._base = round(self._midnight.at - BEFORE_MIDNIGHT - time.time())
        self.time.begin(self._base)
        self._witness = directory / "witness"
        self._witness.touch()
        self._disk = disk
        state_dir = (directory if disk is None else disk.directory) / "s"
        daemon = Daemon(state_dir, environment={**dial.environment, **settings})
        daemon.log = directory / "s.log"
        daemon.program = dial.program
        self._daemon = daemon
        self._rng = rng
        self._deck: list[Callable[[], None]] = []
        self._pulse = Pulse(directory, self.time.stalls)

    # -- schedules

    def start(self) -> None:
        self._pulse.start()
        self._boot(time.time())

    def create(self, number: int, overlap: str) -> None:
        # Two of them now and then: they share the workflow's runs, and nothing else.
        specs = [self._spec() for _ in range(1 + (number % 4 == 0))]
        windows = (BLACKOUTS[number // 2 % len(BLACKOUTS)],) if number % 2 else ()
        workflow = self._timed(f"w{number}", overlap, windows)
        asked = time.time()
        self._daemon.apply(workflow.definition(specs))
        workflow.versions = [[] for _ in specs]
        self.workflows.append(workflow)
        for index, spec in enumerate(specs):
            self._note(workflow, index, spec, asked, time.time())

    def create_booting(self, number: int) -> None:
        workflow = self._timed(f"b{number}", "allow", ())
        self._daemon.apply(workflow.definition([Spec(cron=REBOOT)]))
        self.booting.append(workflow)

    def create_past(self, number: int, overlap: str) -> None:
        past = make_past(self._timed(f"p{number}", overlap, ()), time.time() + self.time.offset)
        self._daemon.apply(past.definition())
        self.pasts.append(past)

    def _timed(self, name: str, overlap: str, windows: tuple[str, ...]) -> Timed:
        return Timed(
            name=name,
            overlap=overlap,
            seconds=SECONDS[overlap],
            witness=str(self._witness),
            blackout=windows,
            closed=CLOSED,
        )

    def _spec(self) -> Spec:
        return random_spec(self._rng, time.time() + self.time.offset, self._midnight)

    def _note(self, workflow: Timed, index: int, spec: Spec, asked: float, stored: float) -> None:
        versions = workflow.versions[index]
        if versions:
            versions[-1].end_asked, versions[-1].end_stored = asked, stored
        made = Version(spec=spec, asked=asked, stored=stored, end_asked=math.inf, end_stored=math.inf)
        made.delay = self._delay(workflow.name, index, spec)
        versions.append(made)

    def _delay(self, name: str, index: int, spec: Spec) -> float:
        """The delay of a due time: as shown, and within the configured jitter."""
        if not spec.jitter:
            return 0.0
        request = workflow_pb2.PreviewScheduleRequest(workflow=name, count=50)
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

    def _changed(self) -> tuple[Timed, int, list[Spec]]:
        """Another schedule for the place of one."""
        workflow = self._rng.choice(self.workflows)
        specs = [versions[-1].spec for versions in workflow.versions]
        index = self._rng.randrange(len(specs))
        specs[index] = self._spec()
        return workflow, index, specs

    def _update(self, workflow: Timed, specs: list[Spec], note: str) -> workflow_pb2.UpdateWorkflowRequest:
        definition = workflow_pb2.Definition(source=workflow.definition(specs, note))
        changed = workflow_pb2.Workflow(name=workflow.name, definition=definition)
        return workflow_pb2.UpdateWorkflowRequest(workflow=changed)

    def _enable(self, workflow: Timed, enabled: bool) -> None:
        request = workflow_pb2.SetWorkflowEnabledRequest(name=workflow.name, enabled=enabled)
        self._daemon.workflows.SetWorkflowEnabled(request, timeout=20)

    # -- what happens

    def act(self) -> None:
        """The daemon serves before and after. Everything has its turn before anything has its next."""
        if not self._deck:
            self._deck = self._rng.sample(
                (
                    self.kill,
                    self.kill_at_failpoint,
                    self.stop,
                    self.freeze,
                    self.jump,
                    self.edit,
                    self.edit_of_the_dying,
                    self.touch,
                    self.toggle,
                    self.drain,
                    self.reboot,
                    self.backfill_of_the_dying,
                ),
                counts=(1, 1, 1, 1, 3, 2, 1, 1, 1, 1, 1, 1),
                k=15,
            )
        way = self._deck.pop()
        self.ways[way.__name__] += 1
        way()
        self.live()

    def live(self, at_least: float = 0.0) -> None:
        """A random time is what is wanted here."""
        signal.sigtimedwait([], at_least + self._rng.uniform(0.0, PAUSE))

    def _hold(self) -> None:
        """In the long form so long that what is decided meanwhile is known to be."""
        self.live(LATE if LONG else 0.0)

    def kill(self) -> None:
        self._kill()
        self._return()

    def _kill(self) -> None:
        self.time.leave()
        self._daemon.kill()
        self.time.left()

    def kill_at_failpoint(self) -> None:
        self._kill()
        self._live_until_failpoint()
        self._return()

    def _live_until_failpoint(self) -> None:
        """It comes back armed, and is not asked for anything until it has died."""
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
        self._kill()

    def stop(self) -> None:
        self.time.leave()
        code = self._daemon.stop()
        self.time.left()
        assert code == 0, f"the daemon cannot stop: {code}\n{self._daemon.tail()}"
        self._return()

    def freeze(self) -> None:
        assert self._daemon.process is not None
        self.time.leave()
        self._daemon.process.send_signal(signal.SIGSTOP)
        self.time.left()
        self.live()
        if self._rng.random() < 0.5:
            self.jump()
        resumed = time.time()
        self._daemon.process.send_signal(signal.SIGCONT)
        self.time.back(resumed, started=False)

    def _return(self) -> None:
        self._wait_below()
        started = time.time()
        self._daemon.start()
        self.time.back(started)

    def _wait_below(self) -> None:
        self.live()
        if self._rng.random() < 0.3:
            self.jump()

    def reboot(self) -> None:
        """All that runs is gone; what is due at a boot is due once, however often a daemon is started."""
        workflow = self._rng.choice(self.booting)
        off = self._disable(workflow) if self._rng.random() < 0.3 else None
        self.time.leave()
        self._go_down()
        self.time.left()
        self.time.cut.append(time.time())
        self._wait_below()
        began = time.time()
        self._daemon.environment["TOBAN_BOOT_ID"] = f"boot-{len(self.time.boots)}"
        if self._rng.random() < 0.5:
            self._live_until_failpoint()
        self._boot(began)
        wait_until(
            lambda: all(self._has_line_of_boot(each) for each in self.booting),
            "what is due at a boot is not decided",
        )
        if off is not None:
            self._enable_again(workflow, off)

    def _go_down(self) -> None:
        if self._disk is not None:
            self._disk.cut()
        self._daemon.kill()
        end_all(self._daemon.state_dir)
        if self._disk is not None:
            self._disk.off()
            self._disk.on()

    def _boot(self, began: float) -> None:
        started = time.time()
        self._daemon.start()
        if self.time.away:
            self.time.back(started)
        self.time.boots.append((began, time.time()))

    def _has_line_of_boot(self, workflow: Timed) -> bool:
        first, last = map(self.time.shown, self.time.boots[-1])
        return any(first <= line.due <= last for line in lines_of(self._daemon, workflow.name))

    def jump(self) -> None:
        """More often forward than back: a decided time is not due again."""
        self.time.jump(self._base + self._rng.randint(-FURTHEST // 2, FURTHEST))

    def edit(self) -> None:
        workflow, index, specs = self._changed()
        asked = time.time()
        self._daemon.workflows.UpdateWorkflow(self._update(workflow, specs, "edited"), timeout=20)
        self.time.wake()
        if specs[index] != workflow.versions[index][-1].spec:
            self._note(workflow, index, specs[index], asked, time.time())

    def edit_of_the_dying(self) -> None:
        """It is killed while it stores another schedule: either that is stored, or nothing of it is."""
        workflow, index, specs = self._changed()
        before = [versions[-1].spec for versions in workflow.versions]
        asked = time.time()
        request = self._update(workflow, specs, "edited by one who died")
        call = self._daemon.workflows.UpdateWorkflow.future(request, timeout=20)
        signal.sigtimedwait([], self._rng.uniform(0.0, 0.04))
        acknowledged = call.done() and call.code() is grpc.StatusCode.OK
        self._kill()
        died = time.time()
        self._return()
        get = workflow_pb2.GetWorkflowRequest(name=workflow.name)
        stored = self._daemon.workflows.GetWorkflow(get, timeout=20).workflow.definition.source
        written = json.loads(stored)["schedule"]
        if written == [spec.written() for spec in before]:
            assert not acknowledged or specs == before, "an edit was acknowledged, and is gone"
            return
        assert written == [spec.written() for spec in specs], "an edit was stored in part"
        self.ways["stored by the dying"] += 1
        self._note(workflow, index, specs[index], asked, died)

    def backfill_of_the_dying(self) -> None:
        """It is killed while it starts the runs of past due times; the same call goes on where that ended."""
        past = self._rng.choice(self.pasts)
        request = past.request(self._rng)
        if self._rng.random() < 0.5:
            self._kill()
            self._wait_below()
            started = time.time()
            self._daemon.start({"TOBAN_FAILPOINTS": f"backfill.stored=kill@{self._rng.randint(1, 3)}"})
            self.time.back(started)
            answer = ask(self._daemon, request)
        else:
            call = self._daemon.workflows.BackfillSchedule.future(request, timeout=20)
            signal.sigtimedwait([], self._rng.uniform(0.0, 0.04))
            answer = call.result() if call.done() and call.code() is grpc.StatusCode.OK else None
        if answer is not None:
            past.acknowledge(request, answer)
        self._kill()
        self._return()
        self.ways["of them before the answer"] += answer is None
        # Without an answer it is this one that counts; with one nothing more may come of it.
        repeated = self._daemon.workflows.BackfillSchedule(request, timeout=20)
        if answer is None:
            past.acknowledge(request, repeated)
        else:
            before, after = ([(line.due_at, line.run_id) for line in each.times] for each in (answer, repeated))
            assert before == after, "a repeated backfill has other runs"

    def touch(self) -> None:
        """Something else of the definition changes: its schedules go on."""
        workflow = self._rng.choice(self.workflows)
        specs = [versions[-1].spec for versions in workflow.versions]
        request = self._update(workflow, specs, f"touched {time.time()}")
        self._daemon.workflows.UpdateWorkflow(request, timeout=20)
        self.time.wake()

    def toggle(self) -> None:
        workflow = self._rng.choice(self.workflows)
        off = self._disable(workflow)
        self._hold()
        if self._rng.random() < 0.3:
            self.kill()
        self._enable_again(workflow, off)

    def _disable(self, workflow: Timed) -> tuple[float, float]:
        asked = time.time()
        self._enable(workflow, False)
        return asked, time.time()

    def _enable_again(self, workflow: Timed, off: tuple[float, float]) -> None:
        asked = time.time()
        self._enable(workflow, True)
        workflow.disabled.append((*off, asked, time.time()))

    def drain(self) -> None:
        """One that dies meanwhile comes back and starts things."""
        asked = time.time()
        self._daemon.system.Drain(system_pb2.DrainRequest(), timeout=20)
        done = time.time()
        self._hold()
        ends = time.time()
        if self._rng.random() < 0.3:
            self._kill()
            self.time.drained.append((asked, done, ends, time.time()))
            self._return()
        else:
            self._daemon.system.Resume(system_pb2.ResumeRequest(), timeout=20)
            self.time.drained.append((asked, done, ends, time.time()))

    # -- afterwards

    def settle(self) -> Ledger:
        """All that was due so far is decided, and all runs have ended."""
        # The clock shows again what it showed at most, so that nothing waits for it.
        self.time.jump(max(offset for _, offset in self.time.offsets))
        self.touch()
        end = time.time()

        left: list[str] = []

        def all_decided() -> bool:
            left[:] = missing(self.workflows, self.read(end), self.time, at_all=True)
            return not left

        try:
            wait_until(all_decided, "not all that was due is decided", SETTLED)
        except AssertionError:
            raise AssertionError("\n".join([*left[:20], str(self.time)])) from None
        for workflow in self.workflows:
            workflow.disabled.append((*self._disable(workflow), math.inf, math.inf))
        for run in runs_of(self._daemon):
            self._daemon.wait_run(run.id, 120)
        return self.read(end)

    def clear(self) -> None:
        self._pulse.stop()
        self._daemon.clear()

    def outcomes(self) -> Counter[str]:
        """How often what became of a due time so far."""
        return Counter(line.outcome for line in self._lines())

    def _lines(self) -> list[Line]:
        return [line for each in (*self.workflows, *self.booting) for line in lines_of(self._daemon, each.name)]

    def read(self, end: float) -> Ledger:
        """The lines first: a run that is missing then has none."""
        lines = self._lines()
        runs: dict[str, Started] = {run.id: started_of(run) for run in runs_of(self._daemon)}
        past = {past.timed.name for past in self.pasts}
        self.past_runs = {run.id: run for run in runs.values() if run.workflow in past}
        self.past_lines = [line for name in sorted(past) for line in lines_of(self._daemon, name)]
        runs = {run.id: run for run in runs.values() if run.workflow not in past}
        told = Witnessed.parse(self._witness.read_text().splitlines())
        return Ledger(lines=lines, runs=runs, end=end, read=time.time(), told=told)
