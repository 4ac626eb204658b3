"""Ed25519 keys (RFC 8032) as ``openssl`` writes them. Needs the package cryptography; imported when a key is used.

Private keys are PEM in PKCS#8, with a passphrase or without; public keys are PEM (SubjectPublicKeyInfo). A key's id is
the SHA-256 of its public key in DER: ``openssl pkey -pubin -in KEY -outform DER | sha256sum``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from reconciler.core.errors import ConfigError

MAKE_ONE = "Make one with: openssl genpkey -algorithm ed25519 -out KEY.pem"
MAKE_PUBLIC = "Its public half: openssl pkey -in KEY.pem -pubout -out KEY.pub.pem"

_SPKI = bytes.fromhex("302a300506032b6570032100")
"""The prefix of the 32 bytes in every public key's DER (RFC 8410, 4)."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """The 32 bytes of a public key."""

    raw: bytes

    @property
    def id(self) -> str:
        return hashlib.sha256(_SPKI + self.raw).hexdigest()

    def verifies(self, signature: bytes, content: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, content)
        except (InvalidSignature, ValueError):  # ValueError: the bytes are not a point of the curve
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A key that signs; its ``repr`` shows only the public key's id."""

    key: Ed25519PrivateKey

    @property
    def public(self) -> PublicKey:
        return PublicKey(self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    def sign(self, content: bytes) -> bytes:
        """The signature, 64 bytes."""
        return self.key.sign(content)

    def __repr__(self) -> str:
        return f"PrivateKey({self.public.id[:16]})"


def public_key(pem: bytes, name: str) -> PublicKey:
    """Read a public key. Raises ConfigError that says what ``name`` is instead."""
    if b"PRIVATE KEY" in pem:
        raise ConfigError(f"{name} is a private key, but a public one is needed.", hint=MAKE_PUBLIC)
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{name} is not a public key in PEM.", hint=MAKE_PUBLIC) from error
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(f"{name} is not an Ed25519 key.", hint=MAKE_ONE)
    return PublicKey(key.public_bytes(Encoding.Raw, PublicFormat.Raw))


def private_key(pem: bytes, name: str, passphrase: Callable[[], str | None]) -> PrivateKey:
    """Read a private key; ``passphrase`` is called if it is encrypted. Raises ConfigError for an unusable key."""
    if b"PUBLIC KEY" in pem:
        raise ConfigError(f"{name} is a public key, but only a private one can sign.", hint=MAKE_ONE)
    given = None
    try:
        try:
            key = load_pem_private_key(pem, None)
        except TypeError:  # it is encrypted
            if not (given := passphrase()):
                raise ConfigError(f"{name} has a passphrase, but none was given.") from None
            key = load_pem_private_key(pem, given.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        what = "does not open with that passphrase" if given else "is not a private key in PEM"
        raise ConfigError(f"{name} {what}.", hint="Give the right passphrase." if given else MAKE_ONE) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"{name} is not an Ed25519 key.", hint=MAKE_ONE)
    return PrivateKey(key)
