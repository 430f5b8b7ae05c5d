"""The providers of a configuration."""

from __future__ import annotations

from collections.abc import Mapping

from toband.config.secret_providers import CREDENTIAL, ProviderSettings
from toband.ports import SecretProvider
from toband.secret_backends.command_provider import CommandProvider
from toband.secret_backends.key_file import CREDENTIAL as KEY_CREDENTIAL
from toband.secret_backends.secret_directory import SecretDirectory


def providers_of(settings: Mapping[str, ProviderSettings], credentials: str) -> Mapping[str, SecretProvider]:
    """By name; `credentials` is the directory of the systemd unit's credentials, if it has any."""
    # systemd decides who may read them.
    found: dict[str, SecretProvider] = {
        CREDENTIAL: SecretDirectory(credentials, hidden={KEY_CREDENTIAL}, private=False)
    }
    for name, each in settings.items():
        if each.directory:
            found[name] = SecretDirectory(each.directory)
        else:
            found[name] = CommandProvider(each.command, env=each.env, timeout=each.timeout, cache=each.cache)
    return found
