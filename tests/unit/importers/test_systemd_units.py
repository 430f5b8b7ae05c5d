"""Unit files of systemd: where they are found, their drop-ins, spans and sizes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from toban.importers.import_model import ImportProblem
from toban.importers.systemd_units import Unit, parse_bytes, parse_span, read_unit

posix = pytest.mark.skipif(sys.platform == "win32", reason="links of POSIX")
ETC, LIB = "etc/systemd/system", "usr/lib/systemd/system"


def put(root: Path, path: str, text: str, *, under: str = ETC) -> None:
    file = root / under / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def drop_in(root: Path, folder: str, file: str, *, under: str = ETC) -> None:
    """One that says where it is."""
    put(root, f"{folder}/{file}", f"[Service]\nEnvironment={folder}\n", under=under)


def found(root: Path, name: str) -> Unit:
    return read_unit(name, root=str(root))


def environment(root: Path, name: str) -> list[str]:
    return list(found(root, name).all("Service", "Environment"))


def test_drop_ins_and_continued_lines(tmp_path: Path) -> None:
    put(tmp_path, "a.service", "; no\n[Service]\nExecStart=/bin/a \\\n  # not this\n  b\nNice=1\n")
    put(tmp_path, "a.service.d/20.conf", "[Service]\nNice=3\n")
    put(tmp_path, "a.service.d/10.conf", "[Service]\nExecStart=\nExecStart=/bin/c\nNice=2\n")
    put(tmp_path, "a.service.d/20.conf", "[Service]\nNice=9\n", under=LIB)
    unit = found(tmp_path, "a.service")
    assert unit.all("Service", "ExecStart") == ["/bin/c"]
    assert unit.last("Service", "Nice") == "3"


def test_drop_ins_of_prefixes_and_of_the_type_are_read(tmp_path: Path) -> None:
    put(tmp_path, "a-b-c.service", "[Service]\n")
    drop_in(tmp_path, "service.d", "1.conf")
    drop_in(tmp_path, "a-.service.d", "2.conf")
    drop_in(tmp_path, "a-b-.service.d", "3.conf")
    drop_in(tmp_path, "a-b-c.service.d", "4.conf")
    drop_in(tmp_path, "a-b.service.d", "5.conf")
    drop_in(tmp_path, "timer.d", "6.conf")
    assert environment(tmp_path, "a-b-c.service") == [
        "service.d",
        "a-.service.d",
        "a-b-.service.d",
        "a-b-c.service.d",
    ]


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("a-b-c.service", ["a-b-c.service.d", "a-b-.service.d", "a-.service.d", "service.d"]),
        (
            "a-b@x.service",
            ["a-b@x.service.d", "a-b@.service.d", "a-.service.d", "a-@x.service.d", "a-@.service.d", "service.d"],
        ),
    ],
)
def test_of_drop_ins_with_one_name_the_closest_counts(tmp_path: Path, name: str, order: list[str]) -> None:
    put(tmp_path, name, "[Service]\n")
    for folder in reversed(order):
        drop_in(tmp_path, folder, "same.conf")
        assert environment(tmp_path, name) == [folder]


def test_the_place_of_a_drop_in_goes_before_how_close_it_is_but_for_those_of_the_type(
    tmp_path: Path,
) -> None:
    put(tmp_path, "a-b.service", "[Service]\n")
    drop_in(tmp_path, "service.d", "same.conf")
    drop_in(tmp_path, "a-b.service.d", "same.conf", under=LIB)
    assert environment(tmp_path, "a-b.service") == ["a-b.service.d"]
    drop_in(tmp_path, "a-.service.d", "same.conf")
    assert environment(tmp_path, "a-b.service") == ["a-.service.d"]


def test_an_empty_trigger_takes_back_the_triggers_of_every_kind(tmp_path: Path) -> None:
    text = "[Timer]\nOnBootSec=5min\nOnUnitActiveSec=1h\nOnCalendar=hourly\nAccuracySec=1s\n"
    put(tmp_path, "a.timer", text)
    put(tmp_path, "a.timer.d/a.conf", "[Timer]\nOnCalendar=\nOnCalendar=daily\n")
    unit = found(tmp_path, "a.timer")
    given = {key: values for (_, key), values in unit.values.items() if values}
    assert given == {"OnCalendar": ["daily"], "AccuracySec": ["1s"]}


def test_spans_and_sizes() -> None:
    assert parse_span("1h 30min") == 5400
    assert parse_span("2w") == 1209600
    assert parse_span("90") == 90
    assert parse_span("250ms") == 0.25
    assert parse_span("infinity") is None
    assert parse_bytes("2G") == 2 << 30
    assert parse_bytes("infinity") is None


def link(root: Path, name: str, target: str, *, under: str = ETC) -> None:
    file = root / under / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.symlink_to(target)


@posix
def test_a_link_to_another_unit_is_another_name_of_it(tmp_path: Path) -> None:
    put(tmp_path, "real.service", "[Service]\nEnvironment=lib\n", under=LIB)
    link(tmp_path, "alias.service", f"/{LIB}/real.service")
    link(tmp_path, "again.service", "alias.service")
    link(tmp_path, "other.service", "elsewhere.service")
    drop_in(tmp_path, "real.service.d", "1.conf")
    drop_in(tmp_path, "alias.service.d", "2.conf")
    drop_in(tmp_path, "again.service.d", "3.conf")
    drop_in(tmp_path, "other.service.d", "4.conf")
    for name in ("real.service", "alias.service", "again.service"):
        unit = found(tmp_path, name)
        assert unit.name == "real.service"
        assert unit.all("Service", "Environment") == [
            "lib",
            "real.service.d",
            "alias.service.d",
            "again.service.d",
        ]
    # The name counts, not the file that the link leads to.
    put(tmp_path, "real.service", "[Service]\nEnvironment=etc\n")
    assert found(tmp_path, "alias.service").all("Service", "Environment")[0] == "etc"


@posix
def test_another_name_of_a_template_has_its_instances(tmp_path: Path) -> None:
    put(tmp_path, "real@.service", "[Service]\n", under=LIB)
    link(tmp_path, "alias@.service", f"/{LIB}/real@.service")
    link(tmp_path, "single@x.service", f"/{LIB}/real@.service")
    for folder in ("alias@y.service.d", "single@x.service.d", "real@x.service.d"):
        drop_in(tmp_path, folder, f"{folder}.conf")
    assert found(tmp_path, "alias@x.service").name == "real@x.service"
    assert found(tmp_path, "single@x.service").name == "real@x.service"
    assert environment(tmp_path, "alias@x.service") == ["real@x.service.d", "single@x.service.d"]
    assert environment(tmp_path, "real@y.service") == ["alias@y.service.d"]


@posix
def test_a_link_out_of_the_directories_brings_a_unit_here(tmp_path: Path) -> None:
    put(tmp_path, "app.service", "[Service]\nNice=1\n", under="opt/app")
    link(tmp_path, "mine.service", "/opt/app/app.service")
    unit = found(tmp_path, "mine.service")
    assert (unit.name, unit.last("Service", "Nice")) == ("mine.service", "1")


@posix
def test_links_that_lead_nowhere_are_told(tmp_path: Path) -> None:
    link(tmp_path, "off.service", "/dev/null")
    link(tmp_path, "gone.service", f"/{LIB}/real.service")
    link(tmp_path, "a.service", "b.service")
    link(tmp_path, "b.service", "a.service")
    link(tmp_path, "self.service", "self.service")
    link(tmp_path, "other.service", "x.timer")
    for name, why in (
        ("off", "off.service is masked"),
        ("gone", "there is no unit real.service, for which gone.service stands, in "),
        ("a", "a.service is part of a cycle of links"),
        ("self", "is part of a cycle of links"),
        ("other", "is a link to x.timer, a unit of another type"),
    ):
        with pytest.raises(ImportProblem, match=why):
            found(tmp_path, f"{name}.service")


@posix
def test_a_drop_in_that_is_masked_is_left_out(tmp_path: Path) -> None:
    put(tmp_path, "a.service", "[Service]\n")
    drop_in(tmp_path, "a.service.d", "1.conf", under=LIB)
    drop_in(tmp_path, "a.service.d", "2.conf", under=LIB)
    link(tmp_path, "a.service.d/1.conf", "/dev/null")
    assert environment(tmp_path, "a.service") == ["a.service.d"]
