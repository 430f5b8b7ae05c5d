"""Steps of another user: they can use their own files, and nothing else of the daemon's."""

from __future__ import annotations

import os
import pwd
from functools import partial

import pytest

from helpers.steps import shell
from helpers.supervision import RUN, Place, Supervision, new_attempt
from helpers.wait import wait_for
from toban.definition import Output, Resources
from toband.domain.attempt_model import TreeCause
from toband.ports import ArtifactError, Collect, LogKind, Placement
from toband.supervise.artifacts.artifact_store import ArtifactFiles

NOBODY = "nobody"


@pytest.fixture(autouse=True)
def root(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root takes on another user")
    try:
        pwd.getpwnam(NOBODY)
    except KeyError:
        pytest.skip(f"there is no user {NOBODY}")
    # As the daemon makes it.
    os.mkdir(place.files.root, 0o700)


def environment(supervision: Supervision) -> dict[str, str]:
    """What a daemon of root's gives to every step."""
    return {
        "TOBAN_PARAMS": supervision.files.params(RUN),
        "TOBAN_CONTEXT_DIR": supervision.files.context(RUN),
    }


async def test_it_is_that_user_with_its_groups(supervision: Supervision) -> None:
    attempt = supervision.launch(
        shell("id -un; id -gn; id -G; grep -h id: /proc/self/status"),
        workspace=supervision.files.work(RUN),
        env=environment(supervision),
        user=NOBODY,
    )
    ended = await supervision.ended(attempt)
    who = pwd.getpwnam(NOBODY)
    name, group, groups, *ids = supervision.printed(attempt).decode().splitlines()

    assert ended.exit_code == 0
    assert name == NOBODY
    assert groups.split() == [str(who.pw_gid)]
    assert group
    # Real, effective, saved, and for files.
    expected = {"Uid:": [str(who.pw_uid)] * 4, "Gid:": [str(who.pw_gid)] * 4}
    assert {line.split()[0]: line.split()[1:] for line in ids if line[:2] in ("Ui", "Gi")} == expected


async def test_it_reaches_what_a_step_is_promised(supervision: Supervision) -> None:
    await supervision.launcher.prepare(RUN, {"answer": 42}, {"type": "T"})
    script = """
set -e
cat "$TOBAN_PARAMS" "$TOBAN_EVENT"
echo kept > "$TOBAN_CONTEXT_DIR/file"
echo here > file
echo answer=42 > "$TOBAN_OUTPUT"
printf '"done"' > "$TOBAN_RESULT"
pwd
"""
    attempt = new_attempt()
    env = environment(supervision) | {
        "TOBAN_EVENT": supervision.files.event(RUN),
        "TOBAN_OUTPUT": supervision.files.output(attempt),
        "TOBAN_RESULT": supervision.files.result(attempt),
    }
    work = supervision.files.work(RUN)
    supervision.launch(shell(script), attempt=attempt, workspace=work, env=env, user=NOBODY)
    ended = await supervision.ended(attempt)

    assert ended.exit_code == 0, supervision.printed(attempt, LogKind.STDERR)
    assert supervision.printed(attempt).decode() == f'{{"answer": 42}}{{"type": "T"}}{work}\n'
    assert (ended.outputs, ended.result) == ({"answer": "42"}, "done")
    assert os.stat(f"{work}/file").st_uid == pwd.getpwnam(NOBODY).pw_uid
    # The next step, of root's, goes on with what it left.
    after = supervision.launch(
        shell('cat file "$TOBAN_CONTEXT_DIR/file"'),
        attempt=new_attempt("after"),
        workspace=work,
        env=environment(supervision),
    )
    await supervision.ended(after)
    assert supervision.printed(after) == b"here\nkept\n"


async def test_it_reaches_nothing_else(supervision: Supervision) -> None:
    other = f"{RUN}-other"
    await supervision.launcher.prepare(other, {"secret": 1})
    earlier = supervision.launch(shell("echo secret"), attempt=new_attempt("earlier"))
    await supervision.ended(earlier)
    supervision.place.write("private")
    os.chmod(supervision.place.path("private"), 0o600)
    files = supervision.files
    attempt = new_attempt()
    script = """
for path in "$@"; do
    ls "$path" 2>/dev/null && echo "listed $path"
    cat "$path" 2>/dev/null && echo "read $path"
    ( : >> "$path" ) 2>/dev/null && echo "wrote $path"
    ( : > "$path/new" ) 2>/dev/null && echo "made $path/new"
done
echo over
"""
    closed = [
        supervision.place.root,
        files.root,
        files.run(RUN),
        files.attempts(RUN),
        files.run(other),
        files.params(other),
        files.work(other),
    ]
    unreadable = [files.log(earlier), files.log(attempt), supervision.place.path("spawner.log")]
    unreadable.append(supervision.place.path("private"))
    # Their names may be known to it, as those of its own files are.
    read = 'for p; do cat "$p" 2>/dev/null && echo "read $p"; done; echo over'
    first = supervision.launch(shell(script, *closed), attempt=attempt, workspace=files.work(RUN), user=NOBODY)
    second = supervision.launch(
        shell(read, *unreadable),
        attempt=new_attempt("reader"),
        workspace=files.work(RUN),
        user=NOBODY,
    )
    for each in (first, second):
        await supervision.ended(each)
        assert supervision.printed(each).decode() == "over\n"


async def test_its_environment_comes_from_files_that_it_may_read(
    supervision: Supervision, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    # The directories of tests are closed to others.
    for path in (outside, *outside.parents):
        if not os.stat(path).st_mode & 0o001:
            os.chmod(path, os.stat(path).st_mode | 0o011)
    for name, mode in (("open", 0o644), ("closed", 0o600)):
        (outside / name).write_text(f"VALUE={name}\n")
        os.chmod(outside / name, mode)
    files = supervision.files

    async def ended(name: str, user: str) -> tuple[str, str]:
        attempt = supervision.launch(
            shell('echo "$VALUE"'),
            attempt=new_attempt(f"{name}-{user or 'root'}"),
            workspace=files.work(RUN),
            env_files=[(str(outside / name), False)],
            user=user,
        )
        event = await supervision.ended(attempt)
        return supervision.printed(attempt).decode(), event.error

    assert await ended("open", NOBODY) == ("open\n", "")
    printed, error = await ended("closed", NOBODY)
    assert (printed, error) == (
        "",
        f"cannot start /bin/sh: cannot read the env_file {outside}/closed: Permission denied",
    )
    assert await ended("closed", "") == ("closed\n", "")


async def test_others_get_no_more_than_before(supervision: Supervision) -> None:
    files = supervision.files
    paths = [supervision.place.root, files.root, files.run(RUN), files.attempts(RUN)]
    paths += [files.work(RUN), files.context(RUN), files.params(RUN)]
    ended = await supervision.run(["true"], user=NOBODY, workspace=files.work(RUN))

    assert ended.exit_code == 0
    for path in paths:
        assert os.stat(path).st_mode & 0o007 == 0, path
    # daemon is another user, with no rights of its own here.
    try:
        pwd.getpwnam("daemon")
    except KeyError:
        pytest.skip("there is no second user to try it with")
    attempt = new_attempt()
    script = f"cat {files.params(RUN)} 2>/dev/null || echo refused"
    supervision.launch(["setpriv", "--reuid=daemon", "--clear-groups", *shell(script)], attempt=attempt)
    await supervision.ended(attempt)
    assert supervision.printed(attempt) == b"refused\n"


async def test_two_users_in_one_run_both_reach_it(supervision: Supervision) -> None:
    try:
        pwd.getpwnam("daemon")
    except KeyError:
        pytest.skip("there is no second user")
    work = supervision.files.work(RUN)
    attempts = [
        supervision.launch(
            shell('cat "$TOBAN_PARAMS" && id -un > "$1"', f"by-{user}-{number}"),
            attempt=new_attempt(f"{user}-{number}"),
            workspace=work,
            env=environment(supervision),
            user=user,
        )
        for number in range(4)
        for user in (NOBODY, "daemon")
    ]
    for attempt in attempts:
        assert (await supervision.ended(attempt)).exit_code == 0
    assert len(os.listdir(work)) == 8


@pytest.mark.parametrize(
    ("user", "reason"),
    [
        ("no-such-user-here", "cannot run it as no-such-user-here: there is no such user"),
        ("4294967294", "cannot run it as 4294967294: there is no such user"),
    ],
)
async def test_a_user_that_there_is_not_is_refused(supervision: Supervision, user: str, reason: str) -> None:
    ended = await supervision.run(shell("echo x >> witness"), user=user)

    assert ended.not_started
    assert ended.error == reason
    assert supervision.witnessed() == 0


@pytest.mark.parametrize("user", ["root", "0"])
async def test_the_daemons_own_user_takes_nothing(supervision: Supervision, user: str) -> None:
    ended = await supervision.run(shell("exit 3"), user=user)

    assert ended.exit_code == 3
    assert os.stat(supervision.files.run(RUN)).st_mode & 0o777 == 0o700


async def test_a_workspace_that_is_closed_to_it_is_said(supervision: Supervision) -> None:
    closed = supervision.place.path("closed")
    os.mkdir(closed, 0o700)
    ended = await supervision.run(["true"], user=NOBODY, workspace=closed)

    assert ended.not_started
    assert ended.error == f"cannot start true: cannot enter the workspace {closed}: Permission denied"


async def test_its_processes_are_limited(supervision: Supervision) -> None:
    """Per user, beyond those that it has."""
    script = """
for n in 1 2 3 4 5 6 7 8 9 10; do sleep 600 & done 2> refused
"""
    attempt = supervision.launch(
        shell(script),
        user=NOBODY,
        resources=Resources(pids=4),
        workspace=supervision.files.work(RUN),
    )
    ended = await supervision.ended(attempt)

    assert ended.exit_code != 0
    # The shell itself is one of them.
    assert ended.ending.leftovers <= 3
    assert "fork" in supervision.place.read(f"runs/{RUN}/work/refused")


async def test_it_is_ended_by_the_daemons_shim(supervision: Supervision) -> None:
    attempt = supervision.launch(
        shell("trap '' TERM; sleep 600 & : > ready; wait; sleep 600"),
        user=NOBODY,
        workspace=supervision.files.work(RUN),
        grace=0.1,
    )
    ready = f"{supervision.files.work(RUN)}/ready"
    await wait_for(lambda: os.path.exists(ready), "the step is not ready")
    supervision.launcher.stop(attempt)
    ended = await supervision.ended(attempt)

    assert (ended.ending.cause, ended.ending.signals) == (TreeCause.CANCEL, ("TERM", "KILL"))
    assert ended.ending.proved_empty
    assert supervision.strays() == []


async def test_it_reads_its_inputs_and_what_it_leaves_is_kept(supervision: Supervision) -> None:
    files = supervision.files
    work, context = files.work(RUN), files.context(RUN)
    artifacts = ArtifactFiles(files)
    keep = partial(Collect, context=context, workspace=work)
    supervision.place.write(f"runs/{RUN}/work/raw.json", "{}")
    outputs = [Output(name="raw", path="raw.json")]
    (kept,) = await artifacts.collect(keep(folder="fetch", outputs=outputs))
    await artifacts.place(
        work,
        [
            Placement(path="in/raw", source=f"{context}/{kept.path}"),
            Placement(path="tree", source=f"{context}/fetch/raw"),
            Placement(path="absent", source=None),
        ],
        own=True,
    )
    script = """
set -e
cat in/raw tree/raw.json absent "$TOBAN_CONTEXT_DIR/fetch/raw/raw.json"
mkdir -m 700 made
echo mine > made/file
chmod 600 made/file
mkdir "$TOBAN_CONTEXT_DIR/later"
rm -rf "$TOBAN_CONTEXT_DIR/fetch" 2> /dev/null || true
mv "$TOBAN_CONTEXT_DIR/fetch" "$TOBAN_CONTEXT_DIR/moved" 2> /dev/null || echo " refused"
"""
    attempt = supervision.launch(shell(script), workspace=work, env=environment(supervision), user=NOBODY)
    ended = await supervision.ended(attempt)

    assert ended.exit_code == 0, supervision.printed(attempt, LogKind.STDERR)
    assert supervision.printed(attempt) == b"{}{}{} refused\n"
    outputs = [Output(name="made", path="made")]
    (left,) = await artifacts.collect(keep(folder="build", outputs=outputs))
    assert (left.path, left.files, left.bytes) == ("build/made/made", 1, 5)
    # It reads again what it made for itself alone.
    source = f"{context}/{left.path}"
    await artifacts.place(work, [Placement(path="again", source=source)], own=True)
    reader = supervision.launch(
        shell('cat again/file "$1/file"; stat -c %a again/file', source),
        attempt=new_attempt("reader"),
        workspace=work,
        user=NOBODY,
    )
    await supervision.ended(reader)
    assert supervision.printed(reader) == b"mine\nmine\n400\n"
    # What is another user's may be changed by it at any time: nothing is kept in there.
    with pytest.raises(ArtifactError, match="later: it belongs to user"):
        await artifacts.collect(keep(folder="later", outputs=outputs))
    await artifacts.close()


async def test_it_enters_its_workspace_through_its_own_links_only(supervision: Supervision) -> None:
    """A link of its own is its own business; another user's could lead it to what only itself can change."""
    who = pwd.getpwnam(NOBODY)
    home, shared = supervision.place.path("home"), supervision.place.path("shared")
    for path, mode in ((home, 0o755), (shared, 0o777)):
        os.mkdir(path)
        os.chmod(path, mode)
        os.mkdir(f"{path}/real", 0o755)
        os.symlink("real", f"{path}/link")
    os.chown(home, who.pw_uid, who.pw_gid)
    os.chmod(supervision.place.root, 0o755)
    own = supervision.launch(["pwd", "-P"], workspace=f"{home}/link", user=NOBODY)
    assert (await supervision.ended(own)).exit_code == 0
    assert supervision.printed(own).decode() == f"{home}/real\n"
    for user in (NOBODY, ""):
        others = await supervision.run(["true"], workspace=f"{shared}/link", user=user)
        assert others.not_started
        assert f"cannot enter the workspace {shared}/link: {shared}/link is a link" in others.error
    # Neither does root follow what is the other user's own.
    roots = await supervision.run(["true"], workspace=f"{home}/link")
    assert roots.not_started
