"""StreamLogs: the output of steps, from any position, at any reader's pace."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from google.protobuf import timestamp_pb2

from helpers.daemon import Daemon, run_state, texts
from helpers.gate import Gate
from helpers.processes import look_inside
from helpers.wait import wait_until
from toban.v1 import run_pb2 as pb

OUT, ERR = pb.LOG_STREAM_STDOUT, pb.LOG_STREAM_STDERR


def apply(daemon: Daemon, name: str, steps: object, **fields: object) -> None:
    definition = {"name": name, "description": "for a test", **fields, "steps": steps}
    daemon.apply(json.dumps(definition))


def opened(daemon: Daemon, run_id: str, **how: Any) -> Iterator[pb.StreamLogsResponse]:
    return iter(daemon.runs.StreamLogs(pb.StreamLogsRequest(run_id=run_id, **how), timeout=60))


def read_until(stream: Iterator[pb.StreamLogsResponse], end: bytes) -> bytes:
    """What came until it ends so."""
    printed = b""
    while not printed.endswith(end):
        printed += b"".join(record.data for record in next(stream).chunk.records)
    return printed


# What interleaves both streams of several steps into many pieces.
CHATTY = 'for n in 1 2 3 4 5 6; do echo "{0} out $n"; echo "{0} err $n" >&2; done; printf "{0} end"'


@pytest.fixture(scope="module")
def chatty(daemon: Daemon) -> pb.Run:
    """Three branches at once, and a step after them."""
    steps: dict[str, Any] = {name: {"run": CHATTY.format(name)} for name in ("a", "b", "c")}
    steps["last"] = {"run": CHATTY.format("last"), "depends_on": ["a", "b", "c"]}
    apply(daemon, "chatty", steps)
    return daemon.run("chatty")


def expected(name: str) -> dict[tuple[str, int], bytes]:
    out = "".join(f"{name} out {n}\n" for n in range(1, 7)) + f"{name} end"
    err = "".join(f"{name} err {n}\n" for n in range(1, 7))
    return {(name, OUT): out.encode(), (name, ERR): err.encode()}


def test_everything_comes_back_by_step_and_stream(daemon: Daemon, chatty: pb.Run) -> None:
    messages = daemon.chunks(chatty.id)
    every = expected("a") | expected("b") | expected("c") | expected("last")
    assert texts(messages) == every
    assert [message.HasField("end") for message in messages] == [False] * (len(messages) - 1) + [True]
    end = messages[-1].end
    assert (end.run_state, end.complete) == (pb.RUN_STATE_SUCCEEDED, True)
    processes = {each.id: each for each in daemon.processes(chatty.id)}
    for message in messages[:-1]:
        chunk = message.chunk
        process = processes[chunk.process_execution_id]
        assert (chunk.step, chunk.attempt) == (process.step, 1)
        times = [record.at.ToMicroseconds() for record in chunk.records]
        assert times == sorted(times)
        assert process.started_at.ToMicroseconds() <= times[0]
        assert times[-1] <= process.finished_at.ToMicroseconds()
    for process in processes.values():
        assert process.stdout_log_bytes == len(every[process.step, OUT])
        assert process.stderr_log_bytes == len(every[process.step, ERR])


def test_a_follower_of_an_ended_run_gets_all_and_the_end_at_once(daemon: Daemon, chatty: pb.Run) -> None:
    assert daemon.chunks(chatty.id, follow=True) == daemon.chunks(chatty.id)


def test_every_position_gives_exactly_the_rest(daemon: Daemon, chatty: pb.Run) -> None:
    whole = daemon.chunks(chatty.id)
    assert len({message.position for message in whole[:-1]}) == len(whole) - 1
    for number, message in enumerate(whole):
        rest = daemon.chunks(chatty.id, message.position)
        assert texts(rest) == texts(whole[number + 1 :])
        assert rest[-1] == whole[-1]


def test_every_position_of_a_followed_run_gives_exactly_the_rest(daemon: Daemon, tmp_path: Path) -> None:
    """A step that prints piece by piece: its follower has many positions, some inside of lines."""
    script = """
import sys
for n in range(40):
    print(n, "x" * n, end=" " if n % 3 else "\\n", flush=True)
    if n % 8 == 7:
        open(sys.argv[1]).readline()
"""
    gates = {name: Gate(f"{tmp_path}/{name}") for name in ("a", "b")}
    step = {"job_type": "exec", "target": sys.executable}
    steps = {name: {**step, "args": ["-I", "-c", script, gate.path]} for name, gate in gates.items()}
    apply(daemon, "pieces", steps)
    run_id = daemon.start_run("pieces")
    pieces = [f"{n} {'x' * n}{' ' if n % 3 else chr(10)}".encode() for n in range(40)]
    stream = opened(daemon, run_id, follow=True)
    whole: list[pb.StreamLogsResponse] = []
    # They go on when the follower has all that they printed: it is live, however slow it is.
    text = b""
    for first in range(0, 40, 8):
        text += b"".join(pieces[first : first + 8])
        while texts(whole) != {("a", OUT): text, ("b", OUT): text}:
            whole.append(next(stream))
        for gate in gates.values():
            gate.release_now()
    whole += stream
    assert texts(whole) == {("a", OUT): text, ("b", OUT): text}
    assert len(whole) > 10
    for number, message in enumerate(whole):
        for follow in (False, True):
            rest = daemon.chunks(run_id, message.position, follow)
            assert texts(rest) == texts(whole[number + 1 :])
            assert rest[-1].end == whole[-1].end


def test_parallel_steps_come_in_the_order_in_which_they_printed(daemon: Daemon, tmp_path: Path) -> None:
    """For a follower of the live run, for a late reader, and from every position."""
    names = ("a", "b", "c")
    gates = {name: Gate(f"{tmp_path}/{name}") for name in names}
    script = 'for n in 1 2 3 4; do read _ < {0}; echo "{1} $n"; done; read _ < {0}'
    apply(daemon, "in-turns", {name: {"run": script.format(gates[name].path, name)} for name in names})
    run_id = daemon.start_run("in-turns")
    stream = opened(daemon, run_id, follow=True)
    live: list[pb.StreamLogsResponse] = []
    turns = [(name, n) for n in range(1, 5) for name in (names if n % 2 else reversed(names))]
    for name, n in turns:
        gates[name].release_now()
        live.append(next(stream))
        assert live[-1].chunk.records[0].data == f"{name} {n}\n".encode()
    for gate in gates.values():
        gate.release_now()
    live += stream

    def lines(messages: list[pb.StreamLogsResponse]) -> list[bytes]:
        return [record.data for message in messages for record in message.chunk.records]

    printed = [f"{name} {n}\n".encode() for name, n in turns]
    assert lines(live) == printed
    for messages in (live, daemon.chunks(run_id)):
        assert lines(messages) == printed
        for number, message in enumerate(messages):
            assert lines(daemon.chunks(run_id, message.position)) == lines(messages[number + 1 :])


def test_steps_and_streams_can_be_chosen(daemon: Daemon, chatty: pb.Run) -> None:
    assert texts(daemon.chunks(chatty.id, step="b")) == expected("b")
    assert texts(daemon.chunks(chatty.id, step="b", attempt=1)) == expected("b")
    assert texts(daemon.chunks(chatty.id, step="b", attempt=2)) == {}
    only = daemon.chunks(chatty.id, streams=[ERR])
    assert {stream for _, stream in texts(only)} == {ERR}
    both = daemon.chunks(chatty.id, step="c", streams=[OUT, ERR])
    assert texts(both) == expected("c")
    assert texts(daemon.chunks(chatty.id, streams=[pb.LOG_STREAM_SYSTEM])) == {}
    for message in daemon.chunks(chatty.id, step="b", streams=[OUT]):
        rest = daemon.chunks(chatty.id, message.position, step="b", streams=[OUT])
        assert rest[-1].end.complete


def test_the_tail_is_the_last_lines_of_each_process(daemon: Daemon, chatty: pb.Run) -> None:
    one = texts(daemon.chunks(chatty.id, tail=1, streams=[OUT]))
    assert one == {(name, OUT): f"{name} end".encode() for name in ("a", "b", "c", "last")}
    three = texts(daemon.chunks(chatty.id, tail=3, streams=[OUT], step="a"))
    assert three == {("a", OUT): b"a out 5\na out 6\na end"}
    errors = texts(daemon.chunks(chatty.id, tail=2, streams=[ERR], step="a"))
    assert errors == {("a", ERR): b"a err 5\na err 6\n"}
    assert texts(daemon.chunks(chatty.id, tail=1000)) == texts(daemon.chunks(chatty.id))
    mixed = daemon.chunks(chatty.id, tail=4, step="a")
    lines = b"".join(each.data for m in mixed for each in m.chunk.records).count(b"\n")
    assert lines <= 4


def test_since_leaves_out_what_is_older(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    apply(daemon, "since", [{"name": "only", "run": f"echo old; read _ < {gate.path}; echo new"}])
    run_id = daemon.start_run("since")
    first = next(opened(daemon, run_id, follow=True))
    old = first.chunk.records[0].at.ToMicroseconds()
    gate.release_now()
    daemon.wait_run(run_id)

    def since(microseconds: int, **how: Any) -> bytes:
        at = timestamp_pb2.Timestamp()
        at.FromMicroseconds(microseconds)
        return texts(daemon.chunks(run_id, since=at, **how)).get(("only", OUT), b"")

    assert since(old) == b"old\nnew\n"
    assert since(old + 1) == b"new\n"
    assert since(old + 1, tail=2) == b"new\n"
    assert since(old + 3600 * 1_000_000) == b""
    assert daemon.chunks(run_id, since=timestamp_pb2.Timestamp()) == daemon.chunks(run_id)


def test_tail_and_since_together_cut_no_line(daemon: Daemon, tmp_path: Path) -> None:
    """The tail begins inside of a piece that is too old: the next piece must stay whole."""
    gate = Gate(f"{tmp_path}/gate")
    script = f"printf 'one\\ntwo\\nthree\\n'; read _ < {gate.path}; echo four"
    apply(daemon, "tail-since", [{"name": "only", "run": script}])
    run_id = daemon.start_run("tail-since")
    old = next(opened(daemon, run_id, follow=True)).chunk.records[0].at.ToMicroseconds()
    gate.release_now()
    daemon.wait_run(run_id)
    at = timestamp_pb2.Timestamp()
    at.FromMicroseconds(old + 1)
    assert texts(daemon.chunks(run_id, tail=3)) == {("only", OUT): b"two\nthree\nfour\n"}
    assert texts(daemon.chunks(run_id, tail=3, since=at)) == {("only", OUT): b"four\n"}


def test_a_follower_with_a_tail_misses_nothing_that_begins_later(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    steps = [
        {"name": "first", "run": f"seq 1 50; read _ < {gate.path}; seq 51 60"},
        {"name": "second", "run": "seq 1 200"},
    ]
    apply(daemon, "tail-follow", steps)
    run_id = daemon.start_run("tail-follow")
    wait_until(lambda: daemon.log_of(run_id).get(OUT, b"").endswith(b"\n50\n"), "it prints")
    stream = opened(daemon, run_id, follow=True, tail=2)
    messages = [next(stream)]
    gate.release_now()
    messages += list(stream)
    printed = texts(messages)
    assert printed["first", OUT] == "".join(f"{n}\n" for n in range(49, 61)).encode()
    assert printed["second", OUT] == "".join(f"{n}\n" for n in range(1, 201)).encode()


STRUCTURED = """
import sys
def say(file, text):
    file.write(text)
    file.flush()
say(sys.stdout, "begin\\n::progress 1/2 half")
say(sys.stderr, "trouble\\n::log level=err")
open(sys.argv[1]).readline()
say(sys.stdout, "way\\r\\n::log level=warning 容量 91%\\n::progres 2/2\\n::progress 2/2")
say(sys.stderr, "or broken\\n")
"""


def test_structured_lines_are_left_out_and_log_lines_have_a_level(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    talk = {"job_type": "exec", "target": sys.executable, "args": ["-I", "-c", STRUCTURED, gate.path]}
    use = {
        "job_type": "exec",
        "target": "printf",
        "args": ["%s|%s", "{{ steps.talk.stdout }}", "{{ steps.talk.stderr }}"],
    }
    apply(daemon, "structured", {"talk": talk, "use": {**use, "depends_on": ["talk"]}})
    run_id = daemon.start_run("structured")
    early = {how: opened(daemon, run_id, follow=True, step="talk", raw=how) for how in (False, True)}
    live: dict[bool, list[pb.StreamLogsResponse]] = {False: [], True: []}
    while texts(live[False]) != {("talk", OUT): b"begin\n", ("talk", ERR): b"trouble\n"}:
        live[False].append(next(early[False]))
    gate.release_now()
    for how, stream in early.items():
        live[how] += stream
    raw = {
        (
            "talk",
            OUT,
        ): "begin\n::progress 1/2 halfway\r\n::log level=warning 容量 91%\n::progres 2/2\n::progress 2/2".encode(),
        ("talk", ERR): b"trouble\n::log level=error broken\n",
    }
    view = {
        ("talk", OUT): "begin\n容量 91%\n::progres 2/2\n::progress 2/2".encode(),
        ("talk", ERR): b"trouble\nbroken\n",
    }
    assert texts(live[False]) == view
    assert texts(live[True]) == raw
    daemon.wait_run(run_id)
    assert daemon.log_of(run_id, "use")[OUT] == b"begin\n::progres 2/2\n::progress 2/2|trouble"
    process = daemon.process_of(run_id, "talk")
    assert (process.stdout_log_bytes, process.stderr_log_bytes) == tuple(map(len, raw.values()))

    # Every position of a follower continues in its own view, and each view is the same for a late reader.
    for raw_view, expected in ((False, view), (True, raw)):
        assert texts(daemon.chunks(run_id, step="talk", raw=raw_view)) == expected
        for number, message in enumerate(live[raw_view]):
            rest = daemon.chunks(run_id, message.position, step="talk", raw=raw_view)
            assert texts(rest) == texts(live[raw_view][number + 1 :])
    records = [each for message in daemon.chunks(run_id, step="talk") for each in message.chunk.records]
    levels = {(each.level, each.message, each.data.decode()) for each in records if each.level}
    assert levels == {
        (pb.LOG_LEVEL_WARNING, "容量 91%", "容量 91%\n"),
        (pb.LOG_LEVEL_ERROR, "broken", "broken\n"),
    }
    warnings = texts(daemon.chunks(run_id, step="talk", level=pb.LOG_LEVEL_WARNING))
    assert warnings == {("talk", OUT): "容量 91%\n".encode(), ("talk", ERR): b"trouble\nbroken\n"}
    errors = texts(daemon.chunks(run_id, step="talk", level=pb.LOG_LEVEL_ERROR, tail=5))
    assert errors == {("talk", ERR): b"broken\n"}


def test_followers_see_what_is_printed_while_it_is_printed(daemon: Daemon, tmp_path: Path) -> None:
    gates = [Gate(f"{tmp_path}/gate{n}") for n in range(3)]
    steps = {f"s{n}": {"run": f"echo {n} ready; read _ < {gate.path}; echo {n} done"} for n, gate in enumerate(gates)}
    apply(daemon, "live", steps)
    run_id = daemon.start_run("live")
    early = [opened(daemon, run_id, follow=True) for _ in range(2)]
    of_step = opened(daemon, run_id, follow=True, step="s1")
    assert read_until(of_step, b"ready\n") == b"1 ready\n"
    for stream in early:
        seen: set[bytes] = set()
        while len(seen) < 3:
            seen |= {record.data for record in next(stream).chunk.records}
        assert seen == {b"0 ready\n", b"1 ready\n", b"2 ready\n"}
    gates[1].release_now()
    assert read_until(of_step, b"done\n") == b"1 done\n"
    end = next(of_step)
    assert end.end.run_state == pb.RUN_STATE_RUNNING, "the step has ended, its run has not"
    assert end.end.complete
    assert next(of_step, None) is None
    late = opened(daemon, run_id, follow=True)
    gates[0].release_now()
    gates[2].release_now()
    done = {f"{n} done\n".encode() for n in range(3)}
    for stream in early:
        rest = list(stream)
        assert set(texts(rest).values()) == done
        assert rest[-1].end.complete
    assert texts(list(late)) == {(f"s{n}", OUT): f"{n} ready\n{n} done\n".encode() for n in range(3)}


def test_a_follower_may_come_before_the_step_prints(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    steps = [
        {"name": "first", "run": f"read _ < {gate.path}"},
        {"name": "second", "run": "echo hello"},
    ]
    apply(daemon, "early", steps)
    run_id = daemon.start_run("early")
    stream = opened(daemon, run_id, follow=True, step="second")
    gate.release_now()
    messages = list(stream)
    assert texts(messages) == {("second", OUT): b"hello\n"}
    assert messages[-1].end.complete


def test_the_log_of_a_run_that_goes_on_is_not_called_complete(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    steps = [{"name": "done", "run": "echo a"}, {"name": "open", "run": f"read _ < {gate.path}"}]
    apply(daemon, "open-ended", steps)
    run_id = daemon.start_run("open-ended")
    daemon.wait_started(run_id, "open")
    assert not daemon.chunks(run_id)[-1].end.complete
    assert not daemon.chunks(run_id, step="open")[-1].end.complete
    assert daemon.chunks(run_id, step="done")[-1].end.complete
    gate.release_now()
    daemon.wait_run(run_id)
    assert daemon.chunks(run_id)[-1].end.complete


def test_steps_that_never_ran_have_an_empty_log_that_is_complete(daemon: Daemon) -> None:
    apply(daemon, "none", [{"name": "a", "run": "exit 1"}, {"name": "b", "run": "echo b"}])
    run = daemon.run("none")
    assert run_state(run) == "FAILED"
    (end,) = daemon.chunks(run.id, step="b", follow=True)
    assert end.end.complete
    assert end.end.run_state == pb.RUN_STATE_FAILED


def test_a_reader_that_does_not_read_slows_nobody(daemon: Daemon) -> None:
    """The step prints far more than a stream can hold; its followers have taken one message."""
    size = 30_000_000
    apply(daemon, "loud", [{"name": "only", "run": f"head -c {size} /dev/zero"}])
    run_id = daemon.start_run("loud")
    stuck = [opened(daemon, run_id, follow=True) for _ in range(3)]
    for stream in stuck:
        next(stream)
    run = daemon.wait_run(run_id)
    assert run_state(run) == "SUCCEEDED"
    assert daemon.process_of(run_id, "only").stdout_log_bytes == size
    for stream in stuck[:2]:
        cast(Any, stream).cancel()
    rest = sum(len(record.data) for message in stuck[2] for record in message.chunk.records)
    assert rest > size / 2, "who reads at last still gets all of it"


def test_a_reader_that_leaves_is_forgotten(daemon: Daemon, tmp_path: Path) -> None:
    gate = Gate(f"{tmp_path}/gate")
    apply(daemon, "left", [{"name": "only", "run": f"echo a; read _ < {gate.path}; echo b"}])
    run_id = daemon.start_run("left")
    daemon.wait_started(run_id, "only")

    def watches() -> int:
        """inotify watches that the daemon holds: one per followed run, however many follow it."""
        look_inside(daemon.pid)
        count = 0
        for each in Path(f"/proc/{daemon.pid}/fdinfo").iterdir():
            with suppress(FileNotFoundError):  # closed since
                count += each.read_text().count("inotify wd:")
        return count

    wait_until(lambda: watches() == 0, "the daemon still watches for readers of other tests")
    streams = [opened(daemon, run_id, follow=True) for _ in range(20)]
    for stream in streams:
        next(stream)
    wait_until(lambda: watches() == 1, "the daemon does not watch the log")
    for stream in streams[1:]:
        cast(Any, stream).cancel()
    threads = threading.Thread(target=lambda: cast(Any, streams[0]).cancel())
    threads.start()
    threads.join()
    wait_until(lambda: watches() == 0, "the daemon still watches for readers who left")
    gate.release_now()
    assert run_state(daemon.wait_run(run_id)) == "SUCCEEDED"
    assert texts(daemon.chunks(run_id)) == {("only", OUT): b"a\nb\n"}


def test_a_large_piece_can_be_left_and_taken_up_again_within(daemon: Daemon) -> None:
    steps = [{"name": "only", "run": "seq 200000"}]
    daemon.apply(json.dumps({"name": "counts-far", "description": "for a test", "steps": steps}))
    run = daemon.run("counts-far")
    whole = daemon.log_of(run.id)[pb.LOG_STREAM_STDOUT]
    given = b""
    inside = 0
    for message in daemon.chunks(run.id):
        given += b"".join(record.data for record in message.chunk.records)
        inside += "+" in message.position
        if "+" in message.position:
            rest = daemon.chunks(run.id, message.position)
            data = b"".join(record.data for each in rest for record in each.chunk.records)
            assert given + data == whole
    assert whole == b"".join(b"%d\n" % n for n in range(1, 200001))
    assert inside
