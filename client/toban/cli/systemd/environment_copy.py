"""The packages of this environment that the daemon needs, copied into another one: without a network, as they are."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Final

from toban.cli.error_report import Failure
from toban.cli.exits import Exit

_PROJECT: Final = "toban"
_NEEDED: Final = "daemon"
# Installed with the daemon if they are in this environment, which a package of each tells.
_OPTIONAL: Final = {"postgres": "psycopg", "web": "starlette"}
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^]]*)\])?([^;]*)(?:;(.*))?", re.DOTALL)
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_CODE: Final = (".py", ".toml", ".service", ".conf", ".sysusers", ".tmpfiles")


class EnvironmentCopy:
    """Raises Failure if this environment lacks a package of the daemon."""

    def __init__(self) -> None:
        self._found: dict[str, Distribution] = {}
        self._missing: list[str] = []
        self._visit(_PROJECT, frozenset({_NEEDED, *_OPTIONAL}))
        if self._missing:
            raise Failure(
                f"cannot install the service: {', '.join(sorted(self._missing))} is not installed",
                Exit.USAGE,
                hint="pip install 'toban[daemon]'",
            )
        # The version that is installed can then install the next one.
        self._visit("pip", frozenset())

    @property
    def version(self) -> str:
        return self._found[_PROJECT].version

    @property
    def extras(self) -> str:
        """Those that are installed here."""
        return ",".join([_NEEDED, *(name for name, package in _OPTIONAL.items() if importlib.util.find_spec(package))])

    def identity(self) -> str:
        """A digest of the code of Toban and of the versions of all packages."""
        return identity_of(dict(_packages()), {name: found.version for name, found in self._found.items()})

    def copy_to(self, site_packages: str, *, with_toban: bool) -> None:
        """Raises OSError, Failure."""
        for name, found in self._found.items():
            if name != _PROJECT:
                _copy_files(found, site_packages)
            elif with_toban:
                self._copy_toban(found, site_packages)

    def _copy_toban(self, found: Distribution, site_packages: str) -> None:
        if not _is_editable(found):
            _copy_files(found, site_packages)
            return
        # A working copy: its packages are elsewhere, and so are the files of the service.
        ignored = shutil.ignore_patterns("service_files")
        for name, directory in _packages():
            shutil.copytree(directory, f"{site_packages}/{name}", ignore=ignored, symlinks=True)
        packages = dict(_packages())
        files = os.path.join(packages[_PROJECT], "..", "..", "service-files")
        shutil.copytree(files, f"{site_packages}/{_PROJECT}/service_files")
        _copy_files(found, site_packages, only=".dist-info", without=("direct_url.json", "RECORD"))
        _write_record(site_packages, f"{_PROJECT}-{found.version}.dist-info")

    def _visit(self, name: str, extras: frozenset[str]) -> None:
        key = re.sub(r"[-_.]+", "-", name).lower()
        try:
            found = self._found.get(key) or distribution(key)
        except PackageNotFoundError:
            if key == _PROJECT:
                raise Failure(
                    "cannot install the service: this toban is not an installed package",
                    Exit.USAGE,
                    hint="pip install 'toban[daemon]' into a virtual environment, and use the toban in it",
                ) from None
            return
        seen = key in self._found
        self._found[key] = found
        for text in found.requires or ():
            requirement = _REQUIREMENT.match(text)
            if requirement is None:
                continue
            wanted = _EXTRA.search(requirement[4] or "")
            if wanted is None and seen:
                continue
            if wanted is not None and wanted[1] not in extras:
                continue
            self._require(requirement, optional=wanted is not None and wanted[1] in _OPTIONAL)

    def _require(self, requirement: re.Match[str], *, optional: bool) -> None:
        name = requirement[1]
        key = re.sub(r"[-_.]+", "-", name).lower()
        inner = frozenset(filter(None, (each.strip() for each in (requirement[2] or "").split(","))))
        if key in self._found and not inner:
            return
        self._visit(name, inner)
        # Markers other than an extra may exclude it here.
        conditional = bool(_EXTRA.sub("", requirement[4] or "").strip())
        if key not in self._found and not optional and not conditional:
            self._missing.append(name)


def identity_of(packages: Mapping[str, str], versions: Mapping[str, str]) -> str:
    """`packages` are directories by name."""
    digest = hashlib.sha256(json.dumps(dict(versions), sort_keys=True).encode())
    for name, directory in sorted(packages.items()):
        for path in sorted(_code(directory)):
            with open(path, "rb") as file:
                content = hashlib.sha256(file.read()).hexdigest()
            digest.update(f"{name}/{os.path.relpath(path, directory)} {content}\n".encode())
    return digest.hexdigest()[:8]


def _code(directory: str) -> Iterator[str]:
    for parent, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if name not in ("__pycache__", "service_files")]
        yield from (os.path.join(parent, name) for name in files if name.endswith(_CODE))


def _packages() -> Iterator[tuple[str, str]]:
    """The directories of the packages `toban` and `toband`, as this interpreter finds them."""
    for name in (_PROJECT, "toband"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            yield name, os.path.dirname(os.path.abspath(spec.origin))


def _is_editable(found: Distribution) -> bool:
    try:
        facts = json.loads(found.read_text("direct_url.json") or "{}")
    except ValueError:
        return False
    return bool(facts.get("dir_info", {}).get("editable"))


def _copy_files(found: Distribution, target: str, *, only: str = "", without: tuple[str, ...] = ()) -> None:
    """The files below site-packages, with their times, so that compiled modules stay valid."""
    if found.files is None:
        name = found.metadata["Name"]
        raise Failure(f"cannot copy {name}: it has no list of its files", Exit.USAGE, hint="install it with pip")
    for each in found.files:
        if ".." in each.parts or os.path.isabs(str(each)) or each.name in without:
            continue
        if only and not each.parts[0].endswith(only):
            continue
        source = str(found.locate_file(each))
        if os.path.isfile(source):
            path = os.path.join(target, *each.parts)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            shutil.copy2(source, path)


def _write_record(site_packages: str, dist_info: str) -> None:
    """The list of files that a package needs to be replaced by pip or copied again."""
    lines = [f"{dist_info}/RECORD,,"]
    for name in (_PROJECT, "toband", dist_info):
        for parent, _, files in os.walk(f"{site_packages}/{name}"):
            where = os.path.relpath(parent, site_packages)
            lines += [f"{where}/{file},," for file in files]
    with open(f"{site_packages}/{dist_info}/RECORD", "w", encoding="utf-8") as file:
        file.write("\n".join(sorted(lines)) + "\n")
