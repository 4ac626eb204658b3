"""Signatures of plans: detached, in ``PLAN.sig`` beside the plan, over the bytes of the plan's file.

Other tools can check them: ``openssl pkeyutl -verify -rawin`` takes the plan's file and one of the signatures. A plan
file that was rewritten with other bytes is not the plan that was signed, even if it says the same.

Rules:

1. Every signature present is checked: one that does not fit stops ``apply``, required or not.
2. With ``trusted_keys``, at least one signature present must be by one of them.
3. With ``require_signature``, ``signatures`` different trusted keys must have signed.

This module loads without the package cryptography; only functions that use a key import it.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.config.settings import TrustSettings
from reconciler.core.errors import Changed, ConfigError
from reconciler.core.visible import command
from reconciler.fileio import LARGEST_FILE, locked, open_regular, write_whole
from reconciler.formats.json_fields import FieldError, Fields, json_value

if TYPE_CHECKING:
    from reconciler.trust.ed25519 import PrivateKey, PublicKey

FORMAT = "reconciler.signatures/1"
LARGEST_KEY = 64 * 1024
LARGEST = 64 * 1024
"""Bytes of a file with signatures; each signature takes about 300."""
_FILE = frozenset(("format", "plan_sha256", "signatures"))
_SIGNATURE = frozenset(("key_id", "public_key", "signature"))
_REMOVE = "Remove the file to apply the plan unsigned, or have the plan signed again."


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
    return importlib.import_module("reconciler.trust.ed25519")


def private_key(path: Path, passphrase: str | None, ask: Callable[[], str] | None = None) -> PrivateKey:
    """Read a private key, once. ``ask``: gives the passphrase of one that needs it, where none is given.

    Raises ConfigError for an unusable key, also if its passphrase is missing or wrong.
    """
    pem, module = _content(path, "key"), _ed25519()
    try:
        key: PrivateKey = module.private_key(pem, f"The key {path}", passphrase)
    except module.NeedsPassphrase:
        if ask is None:
            raise
        key = module.private_key(pem, f"The key {path}", ask())
    return key


def own_key(trust: TrustSettings) -> PrivateKey | None:
    """The key that the hook signs its plans with, if it is given one.

    Raises ConfigError for a key that cannot be used, or that is none of ``trusted_keys``.
    """
    if trust.signing_key is None:
        return None
    key = private_key(Path(trust.signing_key), trust.signing_passphrase)
    if trust.trusted_keys and key.public.id not in trusted(trust):
        raise ConfigError(
            f"[trust] signing_key {trust.signing_key} is none of trusted_keys.",
            hint="Add its public half: openssl pkey -in KEY.pem -pubout -out KEY.pub.pem",
        )
    return key


def trusted(trust: TrustSettings) -> dict[str, tuple[str, PublicKey]]:
    """The trusted keys with their names, by key id.

    Raises ConfigError for an unusable one, and where so many are listed twice that no plan could be signed by enough.
    """
    found: dict[str, tuple[str, PublicKey]] = {}
    listed: dict[str, str] = {}
    twins: list[str] = []
    for number, setting in enumerate(trust.trusted_keys, start=1):
        if setting.startswith("-----BEGIN"):  # the key itself, from the environment or a secret file
            name = shown = f"number {number} of trusted_keys"
            pem = setting.encode(errors="surrogateescape")
        else:
            name, shown, pem = Path(setting).name, setting, _content(Path(setting), "key")
        key: PublicKey = _ed25519().public_key(pem, f"[trust] trusted_keys: {name}")
        if key.id in found:
            twins.append(f"{shown} is the same key as {listed[key.id]}")
        found.setdefault(key.id, (name, key))
        listed.setdefault(key.id, shown)
    if twins and trust.require_signature and len(found) < trust.signatures:
        raise ConfigError(
            f"[trust] signatures = {trust.signatures}, and the different keys in trusted_keys are {len(found)}: "
            f"{', '.join(twins)}.",
            hint="List the key of another signer in its place.",
        )
    return found


def _content(path: Path, what: str, most: int = LARGEST_KEY) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise ConfigError(f"The {what} {path} cannot be read: {error.strerror or error}.") from error


# ---------------------------------------------------------------- signing


def sign(plan_path: Path, content: bytes, plan_sha256: str, key: PrivateKey) -> Signer:
    """Sign ``content``, the plan file's bytes, and add the signature to those present.

    Raises Changed if a signature present belongs to another plan or does not fit.
    """
    public = key.public
    return add(plan_path, content, plan_sha256, Signature(public.id, public.raw, key.sign(content)))


def add(plan_path: Path, content: bytes, plan_sha256: str, signature: Signature) -> Signer:
    """Add a signature to those present. Raises Changed if it, or one of them, does not fit, or the file has changed."""
    path = path_for(plan_path)
    with locked(plan_path):
        if _content(plan_path, "plan", LARGEST_FILE + 1) != content:
            raise Changed(
                f"{plan_path} is not the file any more that was shown. Nothing was signed.",
                hint="Look at the plan that is there now, then sign that.",
            )
        there = load_signatures(path, plan_sha256)
        _verify(path, content, there)
        kept = {each.key_id: each for each in (*there, signature)}
        _verify(path, content, list(kept.values()))
        write_whole(path, _text(plan_sha256, list(kept.values())))
    return Signer(signature.key_id, None)


def made_elsewhere(path: Path, public_key_path: Path) -> Signature:
    """A signature from a file: the 64 bytes that ``openssl pkeyutl -sign -rawin`` or a hardware token wrote."""
    key = _ed25519().public_key(_content(public_key_path, "key"), f"The key {public_key_path}")
    raw = _content(path, "signature")
    if len(raw) != 64:
        raise ConfigError(
            f"{path} is not a signature of 64 bytes.", hint="Make it with: openssl pkeyutl -sign -rawin -inkey KEY"
        )
    return Signature(key.id, key.raw, raw)


def _text(plan_sha256: str, signatures: Sequence[Signature]) -> str:
    listed = [
        {
            "key_id": each.key_id,
            "public_key": base64.b64encode(each.public_key).decode(),
            "signature": base64.b64encode(each.signature).decode(),
        }
        for each in signatures
    ]
    return json.dumps({"format": FORMAT, "plan_sha256": plan_sha256, "signatures": listed}, indent=1) + "\n"


# ---------------------------------------------------------------- checking


def check(plan_path: Path, content: bytes, plan_sha256: str, trust: TrustSettings) -> tuple[Signer, ...]:
    """Check the signatures of the plan whose file's bytes are ``content``, and return the signers.

    Raises Changed if a signature does not fit or a required one is absent, ConfigError for unusable trusted keys.
    """
    signers = signers_of(plan_path, content, plan_sha256, trust)
    known = [signer for signer in signers if signer.name is not None]
    if signers and trust.trusted_keys and not known:
        raise Changed(
            f"The plan is signed by {signers[0]}, but by none of [trust] trusted_keys.",
            hint="Have it signed with a trusted key, or add this key to trusted_keys.",
        )
    if trust.require_signature and len(known) < trust.signatures:
        if trust.signatures > 1:
            trusted(trust)  # more signatures may not help
        state = "is not signed by enough trusted keys" if known else "is not signed"
        raise Changed(
            f"The plan {state}: {len(known)} of {trust.signatures} required signatures present "
            "([trust] require_signature).",
            hint=f"Have it reviewed and signed: {command('reconciler', 'sign', plan_path, '--key', 'FILE')}.",
        )
    return signers


def signers_of(plan_path: Path, content: bytes, plan_sha256: str, trust: TrustSettings) -> tuple[Signer, ...]:
    """All signers, trusted or not. Raises Changed if a signature does not fit."""
    path = path_for(plan_path)
    signatures = load_signatures(path, plan_sha256)
    if not signatures:
        return ()
    _verify(path, content, signatures)
    names = {key_id: name for key_id, (name, _) in trusted(trust).items()}
    return tuple(Signer(each.key_id, names.get(each.key_id)) for each in signatures)


def load_signatures(path: Path, plan_sha256: str) -> list[Signature]:
    """The signatures in a file, not verified yet; an empty list if there is no file."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            raw = file.read(LARGEST + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"The signatures {path} cannot be read: {error.strerror or error}.") from error
    try:
        found = Fields(json_value(raw.decode(), fractions=False), "", _FILE)
        if len(raw) > LARGEST or found.value("format") != FORMAT:
            raise FieldError(None, f"is not of format {FORMAT}")
        signatures = [_signature(each, f"signatures[{n}]") for n, each in enumerate(found.items("signatures"))]
        if not signatures or len({each.key_id for each in signatures}) < len(signatures):
            raise FieldError(None, "holds no signature, or two by one key")
        signed_sha256 = found.text("plan_sha256")
    except (FieldError, UnicodeDecodeError) as error:
        problem = error.sentence if isinstance(error, FieldError) else error
        raise Changed(f"The signatures {path} are damaged: {problem}.", hint=_REMOVE) from error
    if signed_sha256 != plan_sha256:
        raise Changed(f"The signatures {path} belong to another plan.", hint=_REMOVE)
    return signatures


def _signature(value: object, where: str) -> Signature:
    fields = Fields(value, where, _SIGNATURE)
    return Signature(fields.text("key_id"), fields.base64_of("public_key", 32), fields.base64_of("signature", 64))


def _verify(path: Path, content: bytes, signatures: Sequence[Signature]) -> None:
    module = _ed25519()
    for each in signatures:
        key: PublicKey = module.PublicKey(each.public_key)
        if each.key_id != key.id or not key.verifies(each.signature, content):
            raise Changed(
                f"The plan is not the one that was signed: the signature of {each.key_id[:16]} in {path} does not fit.",
                hint="Find out which file was altered, and by whom. " + _REMOVE,
            )


def summary(signers: Sequence[Signer]) -> Mapping[str, str | None]:
    """The signers' names by key id, for the audit log."""
    return {signer.key_id: signer.name for signer in signers}
