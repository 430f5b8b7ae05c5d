"""`toban service`: its files on disk, and the texts that it fills in. The life of a service is in tests/e2e."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

from toban.cli.error_report import Failure
from toban.cli.systemd.environment_copy import EnvironmentCopy
from toban.cli.systemd.managed_files import ManagedFiles
from toban.cli.systemd.service_files import ServiceFiles
from toban.cli.systemd.service_layout import ServiceLayout, system_layout, user_layout
from toban.cli.systemd.service_record import ServiceRecord, ServiceVersion, read_record
from toban.cli.systemd.version_directories import VersionDirectories, contents_of, interpreter, known_schemas
from toband import config
from toband.store.sql.schema_revision import HEAD


def files(digests: dict[str, str] | None = None, *, dry_run: bool = False) -> ManagedFiles:
    return ManagedFiles({} if digests is None else digests, dry_run=dry_run)


def actions(managed: ManagedFiles) -> list[str]:
    return [each.action for each in managed.changes]


def test_a_file_is_written_once_and_updated_as_long_as_nobody_edits_it(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "unit"
    managed = files()
    assert managed.place(str(path), "one")
    assert not managed.place(str(path), "one")
    assert managed.place(str(path), "two")
    assert path.read_text() == "two"
    assert actions(managed) == ["created", "unchanged", "updated"]
    assert os.listdir(path.parent) == ["unit"]


def test_an_edited_file_stays_and_the_new_one_goes_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "unit"
    managed = files()
    managed.place(str(path), "one")
    path.write_text("mine")
    assert not managed.place(str(path), "two")
    assert path.read_text() == "mine"
    assert (tmp_path / "unit.new").read_text() == "two"

    assert managed.place(str(path), "two", replace=True)
    assert path.read_text() == "two"
    assert (tmp_path / "unit.old").read_text() == "mine"
    assert not (tmp_path / "unit.new").exists()
    assert actions(managed) == ["created", "kept", "updated"]


def test_a_file_of_an_earlier_installation_is_known_by_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "unit"
    before = files()
    before.place(str(path), "one")
    again = files(before.digests)
    assert again.place(str(path), "two")
    unknown = files()
    assert not unknown.place(str(path), "three")


def test_a_configuration_is_created_and_never_touched_again(tmp_path: Path) -> None:
    path = tmp_path / "toband.toml"
    managed = files()
    assert managed.place_once(str(path), "one", mode=0o640)
    assert not managed.place_once(str(path), "two", mode=0o640)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("one", 0o640)


def test_a_link_of_another_installation_stays(tmp_path: Path) -> None:
    managed = files()
    own, other = tmp_path / "toban", tmp_path / "other"
    assert managed.link(str(own), "/opt/a", owned=lambda found: found.startswith("/opt/"))
    assert managed.link(str(own), "/opt/b", owned=lambda found: found.startswith("/opt/"))
    other.write_text("a program")
    assert not managed.link(str(other), "/opt/b", owned=lambda _: True)
    assert os.readlink(own) == "/opt/b"
    assert actions(managed) == ["created", "updated", "kept"]


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    managed = files(dry_run=True)
    there = tmp_path / "there"
    there.write_text("x")
    assert managed.place(str(tmp_path / "unit"), "one")
    assert managed.place_once(str(tmp_path / "config"), "one", mode=0o600)
    assert managed.link(str(tmp_path / "link"), "/opt/a", owned=lambda _: False)
    assert managed.remove(str(there))
    assert os.listdir(tmp_path) == ["there"]


def test_removing_leaves_an_edited_file_if_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "hardening.conf"
    managed = files()
    managed.place(str(path), "one")
    path.write_text("mine")
    assert not managed.remove(str(path), only_ours=True)
    assert managed.remove(str(path))
    assert not path.exists()


def test_the_record_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = str(tmp_path / "service.json")
    assert read_record(path) == ServiceRecord()
    version = ServiceVersion(version="1.0", directory="/opt/toban/versions/1.0-a", unit="[Unit]\n")
    saved = ServiceRecord(current=version, previous=None, digests={"/etc/x": "ab"})
    saved.save(path)
    assert read_record(path) == saved


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"current": 5, "previous": null, "digests": {}}', "null"])
def test_a_damaged_record_is_refused_by_its_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "service.json"
    path.write_text(text)
    with pytest.raises(Failure, match=re.escape(str(path))):
        read_record(str(path))


def test_the_unit_starts_the_installed_program() -> None:
    unit = ServiceFiles().unit(system_layout(), 252)
    assert "\nExecStart=/opt/toban/current/bin/toband --config /etc/toban/toband.toml\n" in unit
    assert "\n#DelegateSubgroup=toband\n" in unit
    assert "\nDelegateSubgroup=toband\n" in ServiceFiles().unit(system_layout(), 254)


def test_the_unit_of_the_web_console_uses_a_socket_that_gives_no_rights() -> None:
    unit = ServiceFiles().web_unit(system_layout())
    start = "/opt/toban/current/bin/toban --server unix:///run/toban/steps.sock web --no-link --no-build"
    assert f"\nExecStart={start} --listen 127.0.0.1:7280\n" in unit
    assert "\nDynamicUser=yes\n" in unit
    listen = tomllib.loads(ServiceFiles().config(system_layout()))["listen"]
    assert {"address": "unix:///run/toban/steps.sock", "role": "none", "mode": "0666"} in listen
    mine = ServiceFiles().web_unit(user_layout({"XDG_STATE_HOME": "/srv/state"}))
    assert "--server unix:///srv/state/toban/toban.sock web --no-link" in mine
    assert "User=" not in mine


def test_the_unit_of_a_user_has_the_paths_of_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ai ko%")
    layout = user_layout({"XDG_CONFIG_HOME": "/srv/settings"})
    unit = ServiceFiles().unit(layout, 252)
    program = '"/home/ai ko%%/.local/share/toban/current/bin/toband"'
    assert f"\nExecStart={program} --config /srv/settings/toban/toband.toml\n" in unit
    assert "User=" not in unit


def test_the_configuration_of_a_user_needs_no_directory_of_the_system(tmp_path: Path) -> None:
    mine = tmp_path / "toband.toml"
    mine.write_text(ServiceFiles().config(user_layout({})))
    system = tomllib.loads(ServiceFiles().config(system_layout()))
    assert {"state_dir", "listen", "step_user"} <= system.keys()
    assert not {"state_dir", "listen", "step_user"} & tomllib.loads(mine.read_text()).keys()
    config.load(str(mine), {"HOME": "/home/aiko"}, {})


def layout_in(directory: Path) -> ServiceLayout:
    return ServiceLayout(
        user=True,
        prefix=str(directory / "prefix"),
        units=str(directory / "units"),
        config=str(directory / "toband.toml"),
        state_dir=str(directory / "state"),
        links=str(directory / "bin"),
    )


def test_this_environment_is_copied_without_what_only_developers_need(tmp_path: Path) -> None:
    source = EnvironmentCopy()
    directories = VersionDirectories(layout_in(tmp_path))
    made = directories.copy(source, interpreter(layout_in(tmp_path), sys.executable))
    assert made == directories.path_of(source.version, source.identity())
    # A second call finds it.
    assert directories.copy(source, "/nowhere/python") == made

    contents = contents_of(made)
    assert contents["packages"]["toband"].startswith(made)
    assert {"sqlalchemy", "grpcio", "starlette", "toban"} <= contents["versions"].keys()
    assert not {"mypy", "pytest", "ruff"} & contents["versions"].keys()
    assert HEAD in known_schemas(made)
    assert ServiceFiles(contents["packages"]["toban"]).unit(system_layout(), 252)
    script = Path(made, "bin", "toband").read_text()
    assert script.startswith(f"#!{made}/bin/python\n")


def test_only_versions_are_removed_that_no_process_can_use(tmp_path: Path) -> None:
    layout = layout_in(tmp_path)
    for name in ("old", "older", "current", ".new"):
        os.makedirs(f"{layout.versions}/{name}")
    directories = VersionDirectories(layout)
    for name in ("old", "older"):
        directories.switched_off(f"{layout.versions}/{name}")
    since = os.stat(f"{layout.versions}/old/.unused-since").st_mtime
    os.utime(f"{layout.versions}/older/.unused-since", (since - 100, since - 100))
    kept = [f"{layout.versions}/current"]
    assert directories.unused(kept, since - 50) == [f"{layout.versions}/older"]
    assert directories.unused(kept, since - 200) == []
    assert directories.unused(kept, float("inf")) == [f"{layout.versions}/old", f"{layout.versions}/older"]


def test_a_python_that_the_service_cannot_use_is_refused_with_the_reason(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "python").symlink_to(sys.executable)
    with pytest.raises(Failure) as refused:
        interpreter(layout_in(tmp_path), "/nowhere/python")
    assert refused.value.lines == ("/nowhere/python: does not exist",)
