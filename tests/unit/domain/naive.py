"""A naive interpreter of the rules of a run, to compare the product with.

Every step is a small program of its own that waits, works and ends, just as the documentation tells it, in the virtual
time of the simulator. Nothing here is fast, nothing is stored, and nothing of the daemon is used: a case is read as it
is written in `policy_cases.yaml`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from .case_reader import (
    COLLECTING,
    EVALUATING,
    REACTION,
    RERUNS,
    SLOW,
    SLOWLY,
    Case,
    Ends,
    Lasts,
    Spec,
    Verdict,
    check_timeout,
    delay,
    duration,
    final_policy,
    kept_of,
    literal,
    one_second,
    retried,
    retries_of,
    verdict_of,
)
from .virtual_time import NEVER, Program, Wait, World

SATISFYING = {"SUCCEEDED", "INCOMPLETE", "SKIPPED(when)", "SKIPPED(scope)", "SKIPPED(empty)"}


@dataclass
class Loop:
    """What the attempts of one step have in common."""

    end: float = NEVER
    begun: bool = False
    failed_last: bool = False
    losses: int = 0


@dataclass
class Interpreter(World):
    """`case` is one of the table; `lasts` says how long a launch takes, as for the simulator."""

    case: Case
    lasts: Lasts = one_second
    over: dict[str, str] = field(default_factory=dict)
    begun: bool = False
    paused: bool = False
    ending: str = ""
    result: str = ""
    cancelled: bool = False
    stopped_something: bool = False
    failed_hard: bool = False
    places: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    decisions: dict[str, str] = field(default_factory=dict)
    expecting: set[str] = field(default_factory=set)
    attempts: dict[str, int] = field(default_factory=dict)
    iterations: dict[str, int] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    ran: dict[str, bool] = field(default_factory=dict)
    failed_under: dict[str, str] = field(default_factory=dict)
    letters: list[str] = field(default_factory=list)

    def play(self) -> Ends:
        self.last = {name: {"on_failure": "continue", **spec} for name, spec in self.case.get("finally", {}).items()}
        self.specs: Mapping[str, Spec] = {**self.case["steps"], **self.last}
        self.scripts = {name: list(said) for name, said in self.case.get("outcomes", {}).items()}
        self.launches: dict[str, int] = {}
        scope = self.case.get("scope", list(self.specs))
        for index, name in enumerate(self.case["steps"]):
            if name in scope:
                self.add((index, 0), self.step(index, name))
            else:
                self.over[name] = "SKIPPED(scope)"
        if self.last:
            self.add((len(self.specs), 0), self.tidy_up())
        self.agenda.append((0.0, "start"))
        self.after: dict[str, str] = {}
        for when, what in self.case.get("events", {}).items():
            for each in what if isinstance(what, list) else [what]:
                if isinstance(when, str):
                    self.after[when.removeprefix("after_end_of_")] = each
                else:
                    self.agenda.append((float(when), each))
        if "timeout" in self.case and self.case["timeout"] is not None:
            self.agenda.append((duration(self.case["timeout"]), "timeout"))
        self.live()
        return self.ends()

    # -- what happens to the run

    def happen(self, what: str) -> None:
        if all(name in self.over for name in self.specs):
            return
        word, _, name = what.partition(" ")
        match word:
            case "start":
                self.begun = not self.ending
            case "cancel" | "replace":
                # What tidies up is ended by nobody but a person who asks again.
                if not self.result or (word == "cancel" and self.cancelled):
                    self.end_run("cancelled")
                self.cancelled = True
            case "timeout":
                if not self.result:
                    self.end_run("timed_out")
            case "finally_timeout":
                self.end_run("timed_out")
            case "pause":
                self.paused = self.begun and not self.ending and not self.result
            case "resume":
                self.paused = False
            case "approve" | "reject" | "come":
                if name in self.waiting and (word != "come" or name in self.expecting):
                    self.decisions[name] = word
            case _:
                raise AssertionError(f"unknown event {what!r}")

    def until(self, ready: Callable[[], bool], end: float = NEVER) -> Wait:
        """Until then, or the end, or that of the run."""
        return Wait(lambda: bool(self.ending) or ready() or self.now >= end, lambda: end)

    # -- endings

    def end_run(self, cause: str) -> None:
        if not self.ending:
            self.ending, self.ended_at = cause, self.now

    def end(self, name: str, state: str) -> None:
        assert name not in self.over
        self.over[name] = state
        self.places.discard(name)
        if self.ending and state in ("CANCELLED", f"SKIPPED({self.ending})"):
            self.stopped_something = True
        if name in self.after:
            self.agenda.insert(0, (self.now, self.after.pop(name)))

    def fail(self, name: str, spec: Spec, kind: str) -> None:
        """For good, and by itself."""
        if spec.get("on_failure") == "retry":
            self.letters.append(name)
        self.fail_under(name, "abort" if kind == "FATAL" else final_policy(spec))

    def fail_under(self, name: str, policy: str) -> None:
        self.failed_under[name] = policy
        if policy != "continue":
            self.failed_hard = True
        if policy == "abort":
            self.end_run("aborted")
        self.end(name, "FAILED")

    def ends(self) -> Ends:
        lacking = [name for name in self.specs if name not in self.over]
        assert not lacking, f"never ended: {lacking}"
        run = self.result or self.outcome()
        states = [self.over[name] for name in self.specs]
        return Ends(
            run=run,
            steps=self.over,
            attempts=self.attempts,
            iterations=self.iterations,
            failed=states.count("FAILED"),
            incomplete=states.count("INCOMPLETE"),
            dead_letters=sorted(self.letters),
        )

    def outcome(self) -> str:
        if self.ending == "aborted":
            return "FAILED"
        if self.ending and self.stopped_something:
            return self.ending.upper()
        return "FAILED" if self.failed_hard else "SUCCEEDED"

    def tidy_up(self) -> Program:
        """When all is over, a second play begins on the same stage, whose end changes nothing about the first."""
        first = self.case["steps"]
        yield Wait(lambda: all(name in self.over for name in first) and (bool(self.ending) or self.ready_to_tidy()))
        if not self.begun:
            for name in self.last:
                self.over[name] = f"SKIPPED({self.ending})"
            return
        self.result = self.outcome()
        self.ending, self.ended_at, self.paused = "", NEVER, False
        self.agenda.append((self.now + duration(self.case.get("finally_timeout", 300)), "finally_timeout"))
        self.agenda.sort()
        for index, name in enumerate(self.last):
            self.add((len(first) + index, 0), self.step(len(first) + index, name))

    def ready_to_tidy(self) -> bool:
        return self.begun and not self.paused

    # -- steps

    def satisfies(self, name: str) -> bool:
        state = self.over.get(name)
        return state in SATISFYING or (state == "FAILED" and self.failed_under[name] == "continue")

    def blocks(self, name: str) -> bool:
        return name in self.over and not self.satisfies(name)

    def needed(self, name: str) -> list[str]:
        found: list[str] = []
        for each in self.specs[name].get("depends_on", []):
            found += self.needed(each) if self.over.get(each) == "SKIPPED(scope)" else [each]
        return found

    def step(self, index: int, name: str) -> Program:
        """One step of the definition: what it waits for, whether it runs, and how often."""
        spec = self.specs[name]
        needed = self.needed(name)
        yield self.until(lambda: self.begun and (any(map(self.blocks, needed)) or all(map(self.satisfies, needed))))
        if self.ending:
            return self.end(name, f"SKIPPED({self.ending})")
        if any(map(self.blocks, needed)):
            return self.end(name, "SKIPPED(upstream)")
        if "when" in spec or "for_each" in spec:
            yield self.until(lambda: False, self.now + EVALUATING * self.lasts(f"{name}.when", 1))
            if self.ending:
                return self.end(name, f"SKIPPED({self.ending})")
        try:
            wanted = literal(spec.get("when", "true"))
            items = literal(spec["for_each"]) if wanted and "for_each" in spec else None
        except ValueError:
            return self.fail(name, spec, "NON_RETRYABLE")
        if not wanted:
            return self.end(name, "SKIPPED(when)")
        if items is None:
            yield from self.work(name, spec)
        elif not items:
            self.end(name, "SKIPPED(empty)")
        else:
            yield from self.group(index, name, spec, len(items))

    def group(self, index: int, name: str, spec: Spec, count: int) -> Program:
        """A step with instances is over when they are."""
        instances = [f"{name}[{number}]" for number in range(count)]
        for number, instance in enumerate(instances):
            self.add((index, number + 1), self.work(instance, spec))
        yield Wait(lambda: all(instance in self.over for instance in instances))
        ends = [self.over[instance] for instance in instances]
        if "FAILED" in ends:
            policies = [self.failed_under.get(instance, "") for instance in instances]
            self.failed_under[name] = "continue" if "abort" not in policies else "abort"
            if final_policy(spec) == "skip":
                self.failed_under[name] = "skip"
            return self.end(name, "FAILED")
        if any(state == "CANCELLED" or state.startswith("SKIPPED") for state in ends):
            # It has begun with its instances, whether or not one of them did.
            return self.end(name, "CANCELLED")
        return self.end(name, "INCOMPLETE" if "INCOMPLETE" in ends else "SUCCEEDED")

    def work(self, me: str, spec: Spec) -> Program:
        """What a step or an instance does: once, or until its check is content."""
        if spec.get("job_type") == "approval":
            yield from self.approval(me, spec)
            return
        if spec.get("job_type") == "wait":
            yield from self.wait(me, spec)
            return
        checked = "completion_check" in spec
        watched = bool(spec.get("stop_when_unchanged"))
        loop = Loop()
        most = spec.get("max_iterations", 1)
        verdict = Verdict(word="not yet")
        for iteration in range(1, most + 1):
            verdict = yield from self.tries(me, me, spec, loop, iteration)
            if verdict.word != "done":
                return self.give_up(me, spec, verdict, loop)
            if not checked:
                return self.end(me, "SUCCEEDED")
            verdict = yield from self.tries(me, f"{me}.check", spec, loop, iteration)
            if verdict.word not in ("done", "not yet"):
                return self.give_up(me, spec, verdict, loop)
            unchanged = watched and self.left[me] == "same" and iteration > 1
            if verdict.word == "done" or unchanged:
                break
            if iteration < most and "interval" in spec:
                # Its place is free meanwhile.
                self.places.discard(me)
                yield self.until(lambda: False, min(self.now + duration(spec["interval"]), loop.end))
        if verdict.word == "done":
            if self.lacks(me, spec):
                # The step's own judge is content, so that nothing would be better another time.
                return self.fail(me, spec, "NON_RETRYABLE")
            return self.end(me, "SUCCEEDED")
        if spec.get("on_iterations_exhausted", "abort") == "abort":
            return self.fail_under(me, "abort")
        return self.end(me, "INCOMPLETE")

    def lacks(self, me: str, spec: Spec) -> bool:
        """Whether an output that was promised is not there."""
        return bool(spec.get("outputs")) and self.left[me] == "missing"

    def give_up(self, me: str, spec: Spec, verdict: Verdict, loop: Loop) -> None:
        match verdict.word:
            case "failed":
                self.fail(me, spec, verdict.kind)
            case "stopped":
                self.end(me, "CANCELLED")
            case "waited":
                # The run ended before the next attempt of it began.
                if loop.failed_last:
                    self.stopped_something = True
                    self.failed_under[me] = final_policy(spec)
                    self.end(me, "FAILED")
                else:
                    self.end(me, "CANCELLED" if loop.begun else f"SKIPPED({self.ending})")
            case _:
                raise AssertionError(f"unknown verdict {verdict!r}")

    def collect(self) -> Program:
        """Takes a moment, which nothing cuts short."""
        end = self.now + COLLECTING
        yield Wait(lambda: self.now >= end, lambda: end)

    def room(self, me: str) -> bool:
        if self.paused:
            return False
        step = me.partition("[")[0]
        siblings = sum(each.startswith(f"{step}[") for each in self.places | self.waiting)
        if siblings >= self.specs[step].get("max_parallel", NEVER):
            return False
        # An approval or a wait needs no place among the others.
        most = self.case.get("concurrency") or NEVER
        return self.specs[step].get("job_type") in ("approval", "wait") or len(self.places) < most

    def tries(self, me: str, name: str, spec: Spec, loop: Loop, iteration: int) -> Generator[Wait, None, Verdict]:
        """Attempts, until one has a result or there is none to be had."""
        retries = 0
        while True:
            # In the middle of its loop it has its place already, and keeps it.
            yield self.until(lambda: self.room(me) or (me in self.places and not self.paused), loop.end)
            if self.ending:
                return Verdict(word="waited")
            if self.now >= loop.end:
                return Verdict(word="failed", kind="RETRYABLE_TRANSIENT")
            self.places.add(me)
            verdict = yield from self.attempt(me, name, spec, loop, iteration)
            if verdict.word == "done" and name == me and kept_of(spec):
                yield from self.collect()
                if "completion_check" not in spec and self.lacks(me, spec):
                    verdict = Verdict(word="failed", kind="RETRYABLE_TRANSIENT")
            elif verdict.word in ("failed", "stopped") and name == me and spec.get("outputs") and self.ran[me]:
                # Those that exist are kept, whatever became of it.
                yield from self.collect()
            if verdict.word in ("done", "not yet"):
                loop.failed_last = False
                return verdict
            self.places.discard(me)
            if verdict.word in ("stopped", "waited") or verdict.final:
                return verdict
            wait = 0.0
            if verdict.word == "lost":
                loop.losses += 1
                again = spec.get("on_lost") == "rerun" and loop.losses <= RERUNS
                verdict = Verdict(word="failed", kind="NON_RETRYABLE")
            else:
                again = retries < retries_of(spec) and retried(spec, verdict)
                retries += 1
                wait = delay(spec, verdict, retries)
            if not again:
                return verdict
            loop.failed_last = True
            if wait:
                yield self.until(lambda: False, min(self.now + wait, loop.end))

    def attempt(self, me: str, name: str, spec: Spec, loop: Loop, iteration: int) -> Generator[Wait, None, Verdict]:
        """One process from its beginning to its end; a place was found for it."""
        check, looped = name != me, "completion_check" in spec
        limit = spec.get("timeout")
        if looped and limit is not None and loop.end == NEVER:
            loop.end = self.now + duration(limit)
        if looped:
            self.iterations[me] = iteration
        self.attempts[name] = self.attempts.get(name, 0) + 1
        if check:
            limit = check_timeout(spec)
        while True:
            own = NEVER
            if limit is not None and (check or not looped):
                own = self.now + duration(limit)
            if not check and "idle_timeout" in spec:
                # Those that hang or are slow are silent from their beginning.
                own = min(own, self.now + duration(spec["idle_timeout"]))
            process = self.launch(name, spec, min(own, loop.end))
            yield Wait(process.over, process.ends)
            if process.outcome != "void":
                break
            if self.ending:
                return Verdict(word="waited")
        loop.begun = True
        # Nothing is known of what a lost one left.
        self.ran[me] = process.outcome not in ("nostart", "lost_unproved")
        if process.outcome in ("outside", "child_cancelled") and self.ending:
            return Verdict(word="stopped")  # nobody can tell by whom
        if process.natural <= process.signal():
            if not check:
                self.left[me] = str(process.outcome)
            return verdict_of(process.outcome, {} if check else spec, check)
        if process.outcome in SLOWLY and self.ended_at <= process.deadline:
            return Verdict(word="stopped")
        return Verdict(word="failed", kind="RETRYABLE_TRANSIENT", final=loop.end <= own)

    def launch(self, name: str, spec: Spec, deadline: float) -> Process:
        script = self.scripts.get(name, [])
        outcome = script.pop(0) if script else 0
        self.launches[name] = self.launches.get(name, 0) + 1
        lasts = self.lasts(name, self.launches[name])
        if outcome in SLOWLY:
            lasts = lasts * SLOW if outcome == "slow" else NEVER
        stubborn = outcome == "hang_ignoring_term"
        return Process(
            self,
            outcome=outcome,
            began=self.now,
            natural=self.now + lasts,
            deadline=NEVER if outcome in ("nostart", "void") else deadline,
            heeds=duration(spec.get("kill_grace", 10)) if stubborn else REACTION,
        )

    def approval(self, me: str, spec: Spec) -> Program:
        """Waits for a person."""
        retries = 0
        while True:
            yield self.until(lambda: self.room(me))
            if self.ending:
                return self.give_up(me, spec, Verdict(word="waited"), Loop(failed_last=retries > 0))
            limit = spec.get("timeout")
            end = NEVER if limit is None else self.now + duration(limit)
            self.waiting.add(me)
            yield self.until(lambda: me in self.decisions, end)
            self.waiting.discard(me)
            if me in self.decisions:
                if self.decisions[me] == "approve":
                    return self.end(me, "SUCCEEDED")
                return self.fail(me, spec, "NON_RETRYABLE")
            if self.ending:
                return self.end(me, "CANCELLED")
            verdict = Verdict(word="failed", kind="RETRYABLE_TRANSIENT")
            if retries >= retries_of(spec) or not retried(spec, verdict):
                return self.fail(me, spec, verdict.kind)
            retries += 1
            yield self.until(lambda: False, self.now + delay(spec, verdict, retries))

    def wait(self, me: str, spec: Spec) -> Program:
        """Waits for a time, or until something comes that it knows to wait for."""
        retries = 0
        while True:
            yield self.until(lambda: self.room(me))
            if self.ending:
                return self.give_up(me, spec, Verdict(word="waited"), Loop(failed_last=retries > 0))
            began, limit = self.now, spec.get("timeout")
            end = NEVER if limit is None else began + duration(limit)
            self.waiting.add(me)
            # A duration that is written out needs no evaluation.
            plain = "for" in spec["wait"] and "{{" not in str(spec["wait"]["for"])
            known = began if plain else began + EVALUATING * self.lasts(f"{me}.wait", 1)
            yield self.until(lambda: False, min(known, end))
            over = NEVER
            if self.now >= known:
                given = spec["wait"].get("for")
                if isinstance(given, str) and "{{" in given:
                    self.waiting.discard(me)
                    return self.give_up(me, spec, Verdict(word="failed", kind="NON_RETRYABLE"), Loop())
                self.expecting.add(me)
                over = NEVER if given is None else max(known, began + duration(given))
                yield self.until(lambda: me in self.decisions, min(over, end))
                self.expecting.discard(me)
            self.waiting.discard(me)
            came = self.decisions.pop(me, "") == "come"
            if came or (over <= min(self.now, end) and over <= self.ended_at):
                return self.end(me, "SUCCEEDED")
            if self.ending:
                return self.end(me, "CANCELLED")
            verdict = Verdict(word="failed", kind="RETRYABLE_TRANSIENT")
            if retries >= retries_of(spec) or not retried(spec, verdict):
                return self.fail(me, spec, verdict.kind)
            retries += 1
            yield self.until(lambda: False, self.now + delay(spec, verdict, retries))


@dataclass
class Process:
    """One process: when it would end by itself, and when something else ends it."""

    world: Interpreter
    outcome: int | str
    began: float
    natural: float
    deadline: float
    heeds: float

    def signal(self) -> float:
        """What is quick is about to end by itself when the run's end reaches it."""
        ended = self.world.ended_at if self.outcome in SLOWLY else NEVER
        return max(self.began, min(self.deadline, ended))

    def ends(self) -> float:
        signal = self.signal()
        return self.natural if self.natural <= signal else signal + self.heeds

    def over(self) -> bool:
        return self.world.now >= self.ends()
