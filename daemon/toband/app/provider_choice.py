"""The providers of a configuration."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from toband.config.secret_providers import CREDENTIAL, ProviderSettings
from toband.ports import SecretProvider
from toband.secret_backends.command_provider import CommandProvider
from toband.secret_backends.key_file import CREDENTIAL as KEY_CREDENTIAL
from toband.secret_backends.secret_directory import SecretDirectory


def providers_of(settings: Mapping[str, ProviderSettings], credentials: str) -> dict[str, SecretProvider]:
    """By name; `credentials` is the directory of the systemd unit's credentials, if it has any."""
    # systemd decides who may read them.
    found: dict[str, SecretProvider] = {
        CREDENTIAL: SecretDirectory(credentials, hidden={KEY_CREDENTIAL}, private=False)
    }
    return found | {name: _provider(each) for name, each in settings.items()}


def replace_providers(
    providers: MutableMapping[str, SecretProvider],
    before: Mapping[str, ProviderSettings],
    after: Mapping[str, ProviderSettings],
) -> None:
    """Changes them in place. Those with the same settings stay, with the values that they keep for a while."""
    for name in before.keys() - after.keys():
        del providers[name]
    for name, settings in after.items():
        if before.get(name) != settings:
            providers[name] = _provider(settings)


def _provider(settings: ProviderSettings) -> SecretProvider:
    if settings.directory:
        return SecretDirectory(settings.directory)
    return CommandProvider(settings.command, env=settings.env, timeout=settings.timeout, cache=settings.cache)
