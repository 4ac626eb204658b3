"""The configuration's ``[trust]``: whose plans may be applied, and where it is written down who did what."""

from __future__ import annotations

from dataclasses import dataclass, field

from reconciler.config.table import Table
from reconciler.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TrustSettings:
    """``trusted_keys`` are Ed25519 public keys (PEM), by path or as they are; ``signatures`` says how many of them must
    have signed where one must. ``signing_key`` is the private key with which ``hook`` signs what it applies.
    ``audit_log`` is a file that is only appended to.
    """

    require_signature: bool = False
    signatures: int = 1
    trusted_keys: tuple[str, ...] = ()
    signing_key: str | None = None
    signing_passphrase: str | None = field(default=None, repr=False)
    audit_log: str | None = None


def trust_settings(table: Table) -> TrustSettings:
    keys = table.take("trusted_keys", list, [])
    if not all(isinstance(key, str) and key for key in keys):
        raise ConfigError(f"{table.where('trusted_keys')} must be a list of files.")
    settings = TrustSettings(
        require_signature=table.take("require_signature", bool, False),
        signatures=table.count("signatures", 1, 1),
        trusted_keys=tuple(keys),
        signing_key=_path(table, "signing_key"),
        signing_passphrase=table.text("signing_passphrase"),
        audit_log=_path(table, "audit_log"),
    )
    if settings.require_signature and not settings.trusted_keys:
        raise ConfigError(
            f"{table.where('require_signature')} is true, and no key is trusted.",
            hint="List the public keys of those who may sign, in trusted_keys.",
        )
    known = len(set(settings.trusted_keys))
    if settings.require_signature and settings.signatures > known:
        raise ConfigError(
            f"{table.where('signatures')} = {settings.signatures}, and the trusted keys are {known}.",
            hint="List more of them in trusted_keys.",
        )
    table.done()
    return settings


def _path(table: Table, key: str) -> str | None:
    """A file's path. The file's content would stand here if the path had been given as ``file:PATH``."""
    found: str | None = table.text(key)
    if found is not None and (not found or "\n" in found or "\0" in found):
        raise ConfigError(f"{table.where(key)} is not a file's path.", hint='Give the path itself, without "file:".')
    return found
