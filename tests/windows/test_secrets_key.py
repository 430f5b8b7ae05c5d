"""The key file of secrets on Windows: DPAPI encrypts it for the user of the daemon."""

from __future__ import annotations

import base64
import sys

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows: scripts/test-windows", allow_module_level=True)

from pathlib import Path

from toband.ports import SecretKeyError
from toband.secret_backends.key_file import KeyFile


def test_the_file_is_encrypted_and_read_again(tmp_path: Path) -> None:
    file = KeyFile(str(tmp_path / "secrets.key"))
    assert file.read() == ()
    made = file.create()
    assert base64.b64encode(made.key) not in Path(file.place).read_bytes()
    assert list(file.read()) == [made]
    added = file.prepend([made])
    assert list(file.read()) == [added, made]
    file.keep([added])
    assert list(file.read()) == [added]
    with pytest.raises(SecretKeyError, match="cannot write"):
        file.create()
    Path(file.place).write_bytes(b"changed")
    with pytest.raises(SecretKeyError, match="cannot use"):
        file.read()
