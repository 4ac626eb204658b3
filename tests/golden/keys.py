"""Ed25519 keys that are the same in every run: their signatures are, too."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def write_key(folder: Path, name: str) -> str:
    """Write ``NAME.pem`` and ``NAME.pub.pem``; returns the private key's file name."""
    key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
    for file, content in ((f"{name}.pem", private), (f"{name}.pub.pem", public)):
        path = folder / file
        path.write_bytes(content)
        path.chmod(0o600)
    return f"{name}.pem"
