"""Certificates for tests, made with the keytool that comes with every Java runtime.

An authority signs the broker's certificate (for 127.0.0.1 and no other name) and a client's. The stranger is an
separate authority that no client here trusts.
"""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from reconciler.artifacts import java_executable

CLIENT = "CN=clicks"
_SHROUDED_KEY = bytes.fromhex("060b2a864886f70d010c0a0102")
"""The object identifier pkcs-12-pkcs8ShroudedKeyBag (RFC 7292), as it stands before each private key."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files below ``folder``; ``password`` opens every key and key store."""

    folder: Path
    password: str

    @property
    def authority(self) -> Path:
        return self.folder / "authority.pem"

    @property
    def stranger(self) -> Path:
        """An authority that signed nothing here; its file holds its key as well, so that it can be a client."""
        return self.folder / "stranger.pem"

    @property
    def broker_store(self) -> Path:
        return self.folder / "broker.p12"

    @property
    def client_store(self) -> Path:
        return self.folder / "clicks.p12"

    @property
    def client(self) -> Path:
        """The client's certificate and its encrypted key."""
        return self.folder / "clicks.pem"


def make_certificates(folder: Path, password: str) -> Certificates:
    """All of them, good for two days."""
    made = Certificates(folder, password)
    everything = folder / "everything.p12"
    _make_pair(made, everything, "authority", "CN=authority", "-ext", "bc:c=ca:true")
    _make_pair(made, everything, "broker", "CN=broker", "-signer", "authority", "-ext", "san=ip:127.0.0.1")
    _make_pair(made, everything, "clicks", CLIENT, "-signer", "authority")
    _make_pair(made, everything, "stranger", "CN=stranger", "-ext", "bc:c=ca:true")
    for name, store in (("broker", made.broker_store), ("clicks", made.client_store)):
        source = ("-srckeystore", str(everything), "-srcstorepass", password, "-srcalias", name)
        _keytool(made, store, "-importkeystore", *source)
    listed = _keytool(made, everything, "-list", "-rfc")
    keys = everything.read_bytes()
    made.authority.write_text(_certificate(listed, "authority"))
    made.client.write_text(_certificate(listed, "clicks") + _key(keys, "clicks"))
    made.stranger.write_text(_certificate(listed, "stranger") + _key(keys, "stranger"))
    return made


def _make_pair(made: Certificates, store: Path, alias: str, name: str, *options: str) -> None:
    curve = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "2")
    _keytool(made, store, "-genkeypair", "-alias", alias, "-dname", name, *curve, *options)


def _keytool(made: Certificates, store: Path, *arguments: str) -> str:
    beside = Path(java_executable()).resolve().with_name("keytool")
    program = str(beside) if beside.exists() else shutil.which("keytool")
    assert program, f"there is no keytool beside {java_executable()}"
    opened = ("-keystore", str(store), "-storetype", "PKCS12", "-storepass", made.password)
    quick = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-J-Duser.language=en")
    done = subprocess.run([program, *quick, *arguments, *opened], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _certificate(listed: str, alias: str) -> str:
    """An entry's own certificate out of ``keytool -list -rfc``; those it was signed with come after it."""
    _, _, entry = listed.partition(f": {alias}\n")
    found = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", entry, re.DOTALL)
    assert found, f"no certificate of {alias} in:\n{listed}"
    return found[0]


def _key(store: bytes, alias: str) -> str:
    """An entry's encrypted private key. A PKCS#12 store holds it as PKCS#8, so that it need only be cut out."""
    bags = store.split(_SHROUDED_KEY)[1:]
    (bag,) = [bag for bag in bags if alias.encode("utf-16-be") in bag]
    key = bag[_header(bag) :]  # the value stands in an explicit [0]
    whole = key[: _header(key) + _length(key)]
    lines = base64.encodebytes(whole).decode()
    return f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{lines}-----END ENCRYPTED PRIVATE KEY-----\n"


def _header(der: bytes) -> int:
    """Bytes of tag and length of the DER value that begins here."""
    return 2 + (der[1] & 0x7F if der[1] & 0x80 else 0)


def _length(der: bytes) -> int:
    """Bytes of its content."""
    return int.from_bytes(der[2 : _header(der)], "big") if der[1] & 0x80 else der[1]
