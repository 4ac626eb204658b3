"""The signature of a plan: detached, in ``PLAN.sig`` beside the plan, over the bytes of the plan's file.

Other tools can check it: ``openssl pkeyutl -verify -rawin`` takes the plan's file and the signature. A plan file that
was rewritten with other bytes is not the plan that was signed, even if it says the same.

Rules:

1. A signature that is present is checked: one that does not fit stops ``apply``, required or not.
2. With ``trusted_keys``, a signature that is present must be by one of them.
3. With ``require_signature``, there must be one.

This module loads without the package cryptography; only functions that use a key import it.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.core.errors import Changed, ConfigError
from reconciler.core.json_fields import FieldError, Fields, json_value
from reconciler.core.text import command
from reconciler.fileio import LARGEST_FILE, locked, open_regular, write_whole

if TYPE_CHECKING:
    from reconciler.plan.ed25519 import PrivateKey, PublicKey

FORMAT = "reconciler.signature/1"
LARGEST = 64 * 1024
"""The most bytes of a key's or a signature's file, which has some hundreds."""
_FIELDS = frozenset(("format", "plan_sha256", "key_id", "public_key", "signature"))
_REMOVE = "Remove the file to apply the plan unsigned, or have the plan signed again."


@dataclass(frozen=True, slots=True)
class TrustSettings:
    """``[trust]``: whose plans may be applied.

    ``trusted_keys`` are Ed25519 public keys (PEM), by path or as text; where a signature is required, one of them must
    have signed. ``signing_key`` is the path of the private key with which ``hook`` signs the plans that it applies.
    """

    require_signature: bool = False
    trusted_keys: tuple[str, ...] = ()
    signing_key: str | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature (64 bytes) and the public key that made it (32 bytes)."""

    key_id: str
    public_key: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Signer:
    """A key that has signed; ``name`` is the file name of a trusted key, None for an untrusted one."""

    key_id: str
    name: str | None

    def __str__(self) -> str:
        return f"{self.name or 'a key that is not trusted'} ({self.key_id[:16]})"


def path_for(plan_path: Path) -> Path:
    return plan_path.parent / f"{plan_path.name}.sig"


# ---------------------------------------------------------------- keys


def _ed25519() -> Any:
    if importlib.util.find_spec("cryptography") is None:
        raise ConfigError(
            "Signatures need the Python package cryptography, which is not installed.",
            hint="Run: pip install 'failover-offset-reconciler[sign]'",
        )
    return importlib.import_module("reconciler.plan.ed25519")


def private_key(path: Path, passphrase: Callable[[], str | None] = lambda: None) -> PrivateKey:
    """Read a private key; ``passphrase`` is called if it is encrypted.

    Raises ConfigError for an unusable key, also if its passphrase is missing or wrong.
    """
    key: PrivateKey = _ed25519().private_key(_content(path, "key"), f"The key {path}", passphrase)
    return key


def own_key(trust: TrustSettings) -> PrivateKey | None:
    """The key that the hook signs its plans with, if it is given one.

    Raises ConfigError for a key that cannot be used, or that is none of ``trusted_keys``.
    """
    if trust.signing_key is None:
        return None
    key = private_key(Path(trust.signing_key))
    if trust.trusted_keys and key.public.id not in trusted(trust):
        raise ConfigError(
            f"[trust] signing_key {trust.signing_key} is none of trusted_keys.",
            hint="Add its public half: openssl pkey -in KEY.pem -pubout -out KEY.pub.pem",
        )
    return key


def trusted(trust: TrustSettings) -> dict[str, str]:
    """The names of the trusted keys, by key id. Raises ConfigError for an unusable one."""
    names: dict[str, str] = {}
    for number, setting in enumerate(trust.trusted_keys, start=1):
        if setting.startswith("-----BEGIN"):  # the key itself, from the environment or a secret file
            name = f"number {number} of trusted_keys"
            pem = setting.encode(errors="surrogateescape")
        else:
            name, pem = Path(setting).name, _content(Path(setting), "key")
        key: PublicKey = _ed25519().public_key(pem, f"[trust] trusted_keys: {name}")
        names.setdefault(key.id, name)
    return names


def _content(path: Path, what: str, most: int = LARGEST) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise ConfigError(f"The {what} {path} cannot be read: {error.strerror or error}.") from error


# ---------------------------------------------------------------- signing


def sign(plan_path: Path, content: bytes, plan_sha256: str, key: PrivateKey) -> Signature:
    """Sign ``content``, the plan file's bytes, and write the signature beside the plan, in place of any other.

    Raises Changed if the plan's file is no longer ``content``.
    """
    signature = Signature(key.public.id, key.public.raw, key.sign(content))
    with locked(plan_path):
        if _content(plan_path, "plan", LARGEST_FILE + 1) != content:
            raise Changed(
                f"{plan_path} has changed since it was shown. Nothing was signed.",
                hint="Review the present plan, then sign it.",
            )
        write_whole(path_for(plan_path), _text(plan_sha256, signature))
    return signature


def _text(plan_sha256: str, signature: Signature) -> str:
    fields = {
        "format": FORMAT,
        "plan_sha256": plan_sha256,
        "key_id": signature.key_id,
        "public_key": base64.b64encode(signature.public_key).decode(),
        "signature": base64.b64encode(signature.signature).decode(),
    }
    return json.dumps(fields, indent=1) + "\n"


# ---------------------------------------------------------------- checking


def check(plan_path: Path, content: bytes, plan_sha256: str, trust: TrustSettings) -> Signer | None:
    """Check the signature of the plan whose file's bytes are ``content``. Returns the signer, None if there is none.

    Raises Changed if the signature does not fit, is not by a trusted key, or is absent and required; ConfigError for
    unusable trusted keys.
    """
    signer = signer_of(plan_path, content, plan_sha256, trust)
    refuse_untrusted(plan_path, signer, trust)
    return signer


def refuse_untrusted(plan_path: Path, signer: Signer | None, trust: TrustSettings) -> None:
    """Raise Changed for a signer who is not trusted, and where there is none and one is required."""
    if signer is not None and trust.trusted_keys and signer.name is None:
        raise Changed(
            f"The plan is signed with key {signer.key_id[:16]}, which is none of [trust] trusted_keys.",
            hint="Have it signed with a trusted key, or add this key to trusted_keys.",
        )
    if signer is None and trust.require_signature:
        raise Changed(
            "The plan is not signed, and a trusted key must have signed it.",
            hint=f"Have it reviewed and signed: {command('reconciler', 'sign', plan_path, '--key', 'FILE')}.",
        )


def signer_of(plan_path: Path, content: bytes, plan_sha256: str, trust: TrustSettings) -> Signer | None:
    """The signer, trusted or not; None if there is no signature. Raises Changed if the signature does not fit."""
    path = path_for(plan_path)
    signature = load_signature(path, plan_sha256)
    if signature is None:
        return None
    _verify(path, content, signature)
    return Signer(signature.key_id, trusted(trust).get(signature.key_id))


def load_signature(path: Path, plan_sha256: str) -> Signature | None:
    """The signature in a file, not verified yet; None if there is no file."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            raw = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"The signature {path} cannot be read: {error.strerror or error}.") from error
    try:
        fields = Fields(json_value(raw.decode(), fractions=False), "", _FIELDS)
        if len(raw) > LARGEST or fields.value("format") != FORMAT:
            raise FieldError(None, f"is not of format {FORMAT}")
        signature = Signature(
            fields.text("key_id"), fields.base64_of("public_key", 32), fields.base64_of("signature", 64)
        )
        signed_sha256 = fields.text("plan_sha256")
    except (FieldError, UnicodeDecodeError) as error:
        problem = error.sentence if isinstance(error, FieldError) else error
        raise Changed(f"The signature {path} is damaged: {problem}.", hint=_REMOVE) from error
    if signed_sha256 != plan_sha256:
        raise Changed(f"The signature {path} belongs to another plan.", hint=_REMOVE)
    return signature


def _verify(path: Path, content: bytes, signature: Signature) -> None:
    key: PublicKey = _ed25519().PublicKey(signature.public_key)
    if signature.key_id != key.id or not key.verifies(signature.signature, content):
        raise Changed(
            f"The plan is not the one that was signed: the signature of {key.id[:16]} in {path} does not fit.",
            hint="Find out which file was altered, and by whom. " + _REMOVE,
        )
