"""Unit files of systemd: where they are found, their drop-ins, spans and sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from toban.importing.units import Unit, parse_bytes, parse_span, read_unit

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
            ["a-b@x.service.d", "a-b@.service.d", "a-.service.d", "a-@x.service.d",
             "a-@.service.d", "service.d"],
        ),
    ],
)  # fmt: skip
def test_of_drop_ins_with_one_name_the_closest_counts(
    tmp_path: Path, name: str, order: list[str]
) -> None:
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
