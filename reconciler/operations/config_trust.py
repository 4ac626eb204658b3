"""The configuration's ``[trust]``: whose plans may be applied, and where it is written down who did what."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.core.errors import ConfigError
from reconciler.operations.config_table import Table


@dataclass(frozen=True, slots=True)
class TrustSettings:
    """``trusted_keys`` are paths of Ed25519 public keys (PEM); ``audit_log`` is a file that is only appended to."""

    require_signature: bool = False
    trusted_keys: tuple[str, ...] = ()
    audit_log: str | None = None


def trust_settings(table: Table) -> TrustSettings:
    keys = table.take("trusted_keys", list, [])
    if not all(isinstance(key, str) and key for key in keys):
        raise ConfigError(f"{table.where('trusted_keys')} must be a list of files.")
    settings = TrustSettings(
        require_signature=table.take("require_signature", bool, False),
        trusted_keys=tuple(keys),
        audit_log=table.text("audit_log"),
    )
    if settings.require_signature and not settings.trusted_keys:
        raise ConfigError(
            f"{table.where('require_signature')} is true, and no key is trusted.",
            hint="List the public keys of those who may sign, in trusted_keys.",
        )
    table.done()
    return settings
