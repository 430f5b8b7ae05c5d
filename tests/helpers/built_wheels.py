"""Wheels of this tree, of an earlier commit, and with another version number."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
# Before `toban service`: a unit that was copied by hand.
BEFORE_SERVICE = "190022b477bf99dc47268a12b16b3d99cbd1137c"


def source_before_service(directory: Path) -> bool:
    """Writes the tree of that commit; False if this is no repository with its history."""
    directory.mkdir()
    archive = subprocess.run(
        ["git", "-C", REPOSITORY, "archive", BEFORE_SERVICE], capture_output=True, timeout=60, check=False
    )
    if archive.returncode != 0:
        return False
    subprocess.run(["tar", "-x", "-C", directory], input=archive.stdout, timeout=60, check=True)
    return True


def begin_wheel(source: Path, directory: Path) -> subprocess.Popen[str]:
    """Begins to build a wheel; `finished` waits for it."""
    ignored = ("TOBAN_", "PYTHON", "VIRTUAL_ENV")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ignored)}
    return subprocess.Popen(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, source],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def finished(building: subprocess.Popen[str], directory: Path) -> Path:
    printed, _ = building.communicate(timeout=170)
    assert building.returncode == 0, printed
    (wheel,) = directory.glob("*.whl")
    return wheel


def renumbered(wheel: Path, version: str, directory: Path) -> Path:
    """The same code as another release."""
    before = wheel.name.split("-")[1]
    directory.mkdir(exist_ok=True)
    other = directory / wheel.name.replace(f"-{before}-", f"-{version}-")
    with zipfile.ZipFile(wheel) as found, zipfile.ZipFile(other, "w") as written:
        for entry in found.infolist():
            content = found.read(entry)
            name = entry.filename.replace(f"toban-{before}.", f"toban-{version}.")
            if re.fullmatch(r"toband?/\w+\.py", name):
                content = content.replace(f'"{before}"'.encode(), f'"{version}"'.encode())
            elif name.endswith(".dist-info/METADATA"):
                content = re.sub(rb"(?m)^Version: .*$", f"Version: {version}".encode(), content, count=1)
            elif name.endswith(".dist-info/RECORD"):
                content = re.sub(rb"(?m)^([^,]*),.*$", rb"\1,,", content)
                content = content.replace(f"toban-{before}.".encode(), f"toban-{version}.".encode())
            written.writestr(name, content)
    return other


def unpacked(wheel: Path, environment: Path, shown_as: str, packages: str) -> None:
    """A virtual environment of the system's Python with this wheel, which finds all other packages in `packages`.

    `shown_as` is its path inside of the machine that uses it.
    """
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = environment / "lib" / python / "site-packages"
    site.mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "bin/python").symlink_to(f"/usr/bin/{python}")
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "packages.pth").write_text(f"{packages}\n")
    for data in site.glob("*.data"):
        shutil.rmtree(data)
    for name, module in (("toban", "toban.cli"), ("toband", "toband.__main__")):
        script = environment / "bin" / name
        script.write_text(f"#!{shown_as}/bin/python\nimport sys\n\nfrom {module} import main\n\nsys.exit(main())\n")
        script.chmod(0o755)
