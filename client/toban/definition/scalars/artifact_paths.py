"""Paths of artifacts in a definition: relative, with forward slashes, never leading out of their directory."""

from __future__ import annotations

import posixpath
import re

_SEPARATOR = re.compile(r"[/\\]")
_DRIVE = re.compile(r"[A-Za-z]:")
_SYSTEM, _ORDINARY = ("proc", "sys", "dev"), ("dev", "shm")
_REPEATED = re.compile(r"/(?:\./|/)+")


def clean_path(path: str) -> str:
    """Without `./` and doubled slashes. A trailing slash stays: it marks a directory."""
    path = _REPEATED.sub("/", path)
    while path.startswith("./"):
        path = path[2:]
    return path.removesuffix("/.")


def check_inside(path: str) -> str:
    """The path, if it stays below its base on every system; raises ValueError."""
    if path.startswith(("/", "\\")) or _DRIVE.match(path):
        raise ValueError(f'expected a path relative to the workspace, found "{path}"')
    if ".." in _SEPARATOR.split(path):
        raise ValueError(f'the path "{path}" may lead out of the workspace: write it without ".."')
    return path


def check_below(path: str) -> str:
    """The path, if it names something inside; raises ValueError."""
    check_inside(path)
    if not path.strip() or clean_path(path) in (".", ""):
        raise ValueError("expected a path inside the workspace, found the workspace itself")
    return path


def check_location(path: str) -> str:
    """The path, unless it is certainly in a system directory; raises ValueError. It may contain templates."""
    known, template, _ = path.partition("{{")
    if template:
        known = known.rpartition("/")[0]
    parts = posixpath.normpath(known).strip("/").split("/")
    if known.startswith("/") and parts[0] in _SYSTEM and tuple(parts[:2]) != _ORDINARY:
        raise ValueError(f'expected a directory for files, found "{path}": /{parts[0]} belongs to the system')
    return path


def is_directory(path: str) -> bool:
    """Whether a declared output is certainly a directory: it ends with a slash, or is a glob."""
    return path.endswith("/") or any(mark in path for mark in "*?[")
