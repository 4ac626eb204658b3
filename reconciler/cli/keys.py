"""Private keys of those who sign: their passphrases, from the environment or from a person."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.config.redaction import KNOWN
from reconciler.core.errors import ConfigError
from reconciler.trust import signing

if TYPE_CHECKING:
    from reconciler.trust.ed25519 import PrivateKey

PASSPHRASE = "RECONCILER_KEY_PASSPHRASE"


def private_key(path: Path) -> PrivateKey:
    """The key at ``path``; a person is asked for its passphrase if it has one and the environment does not tell.

    Raises ConfigError for a key that cannot be used, and where nobody is there to be asked.
    """
    passphrase = os.environ.get(PASSPHRASE)
    if not passphrase and signing.has_passphrase(path):
        if not sys.stdin.isatty():
            raise ConfigError(
                f"The key {path} has a passphrase, and nobody is there to be asked.", hint=f"Put it into {PASSPHRASE}."
            )
        passphrase = getpass.getpass(f"Passphrase of {path}: ", sys.stderr)
    if passphrase:
        KNOWN.add(passphrase, f"${{{PASSPHRASE}}}")
    return signing.private_key(path, passphrase)
