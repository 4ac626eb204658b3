"""Signatures of plans: who has signed which, with whose key, and that openssl says the same."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from reconciler.cli import context
from reconciler.config.settings import TrustSettings
from reconciler.core.errors import Changed, ConfigError, ExitCode
from reconciler.plan import signing

CONTENT = b'{"format": "reconciler.plan/1"}\n'
SHA256 = "5" * 64


@dataclass(frozen=True)
class Key:
    """A pair of keys that openssl made."""

    private: Path
    public: Path

    def sign(self, plan: Path, content: bytes = CONTENT) -> signing.Signature:
        return signing.sign(plan, content, SHA256, signing.private_key(self.private))


def openssl(*words: object, passphrase: str = "") -> bytes:
    done = subprocess.run(
        ["openssl", *map(str, words)], capture_output=True, check=True, env={**os.environ, "PASSPHRASE": passphrase}
    )
    return done.stdout


def make(folder: Path, name: str, *algorithm: str) -> Key:
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    openssl("genpkey", "-algorithm", *(algorithm or ("ed25519",)), "-out", private)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    return Key(private, public)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Key]:
    folder = tmp_path_factory.mktemp("keys")
    made: dict[str, Key] = {}
    return lambda name: made.setdefault(name, None) or made.__setitem__(name, make(folder, name)) or made[name]


@pytest.fixture
def ada(keys: Callable[[str], Key]) -> Key:
    return keys("ada")


@pytest.fixture
def ben(keys: Callable[[str], Key]) -> Key:
    return keys("ben")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "failover.plan.json"
    path.write_bytes(CONTENT)
    return path


def trusting(*keys: Key, required: bool = True) -> TrustSettings:
    return TrustSettings(required, tuple(str(key.public) for key in keys))


def check(plan: Path, trust: TrustSettings, content: bytes = CONTENT, sha256: str = SHA256) -> list[str | None]:
    """The name of who has signed, if anyone has."""
    signer = signing.check(plan, content, sha256, trust)
    return [] if signer is None else [signer.name]


def refused(plan: Path, trust: TrustSettings, content: bytes = CONTENT, sha256: str = SHA256) -> str:
    with pytest.raises(Changed) as caught:
        signing.check(plan, content, sha256, trust)
    assert caught.value.exit_code is ExitCode.CHANGED
    assert caught.value.hint is not None
    return caught.value.message


# ---------------------------------------------------------------- what counts


def test_no_signature_is_needed_by_default(plan: Path, ada: Key) -> None:
    assert check(plan, TrustSettings()) == []
    assert check(plan, trusting(ada, required=False)) == []


def test_a_plan_that_must_be_signed_is_refused_until_a_trusted_key_has_signed(plan: Path, ada: Key, ben: Key) -> None:
    assert "The plan is not signed" in refused(plan, trusting(ada))
    ben.sign(plan)
    assert "is none of [trust] trusted_keys" in refused(plan, trusting(ada))
    ada.sign(plan)  # in place of the other
    assert check(plan, trusting(ada)) == ["ada.pub.pem"]
    assert "is none of [trust] trusted_keys" in refused(plan, trusting(ben))


def test_a_signature_is_checked_even_if_none_is_required(plan: Path, ada: Key, ben: Key) -> None:
    ada.sign(plan)
    assert check(plan, TrustSettings()) == [None]
    assert check(plan, trusting(ada, required=False)) == ["ada.pub.pem"]
    assert "is none of [trust] trusted_keys" in refused(plan, trusting(ben, required=False))
    for trust in (TrustSettings(), trusting(ada, required=False), trusting(ada)):
        assert "is not the one that was signed" in refused(plan, trust, CONTENT + b" ")


def test_one_key_under_two_names_is_one_key(plan: Path, ada: Key, tmp_path: Path) -> None:
    again = Key(ada.private, tmp_path / "again.pub.pem")
    again.public.write_bytes(ada.public.read_bytes())
    ada.sign(plan)
    assert check(plan, trusting(ada, again)) == ["ada.pub.pem"]


def test_a_trusted_key_may_be_written_in_the_configuration(plan: Path, ada: Key) -> None:
    """As it does where it comes out of the environment, or with file:PATH."""
    ada.sign(plan)
    assert check(plan, TrustSettings(True, (ada.public.read_text(),))) == ["number 1 of trusted_keys"]


# ---------------------------------------------------------------- the file


def content_of(plan: Path) -> dict[str, Any]:
    return json.loads(signing.path_for(plan).read_text())


def test_the_signatures_file_has_its_documented_format(plan: Path, ada: Key) -> None:
    made = ada.sign(plan)
    found = content_of(plan)
    assert list(found) == ["format", "plan_sha256", "key_id", "public_key", "signature"]
    assert (found["format"], found["plan_sha256"]) == ("reconciler.signature/1", SHA256)
    der = openssl("pkey", "-pubin", "-in", ada.public, "-outform", "DER")
    assert found["key_id"] == made.key_id == hashlib.sha256(der).hexdigest()
    assert base64.b64decode(found["public_key"]) == der[-32:]
    assert len(base64.b64decode(found["signature"])) == 64


def test_openssl_verifies_what_the_product_signed(plan: Path, ada: Key, tmp_path: Path) -> None:
    ada.sign(plan)
    raw = tmp_path / "raw"
    raw.write_bytes(base64.b64decode(content_of(plan)["signature"]))
    verify = ("pkeyutl", "-verify", "-pubin", "-inkey", ada.public, "-rawin", "-sigfile", raw)
    assert b"Successfully" in openssl(*verify, "-in", plan)
    plan.write_bytes(CONTENT + b"\n")
    with pytest.raises(subprocess.CalledProcessError):
        openssl(*verify, "-in", plan)


def test_a_plan_that_was_replaced_while_a_person_was_asked_is_not_signed(plan: Path, ada: Key) -> None:
    plan.write_bytes(CONTENT + b" of another plan")
    with pytest.raises(Changed, match="has changed since it was shown"):
        ada.sign(plan)
    assert not signing.path_for(plan).exists()


def _flip(name: str, place: int) -> Callable[[dict[str, Any]], None]:
    def change(found: dict[str, Any]) -> None:
        raw = bytearray(base64.b64decode(found[name]))
        raw[place] ^= 1
        found[name] = base64.b64encode(raw).decode()

    return change


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another format": lambda found: found.update(format="reconciler.signature/2"),
    "a field more": lambda found: found.update(comment="fine"),
    "a field less": lambda found: found.pop("plan_sha256"),
    "no signature": lambda found: found.pop("signature"),
    "a signature of another kind": lambda found: found.update(signature={"ada": 1}),
    "an empty signature": lambda found: found.update(signature=""),
    "no base64": lambda found: found.update(signature="*" * 88),
    "a signature that is too short": lambda found: found.update(signature="AAAA"),
    "a key that is none": lambda found: found.update(public_key=None),
    "another key's id": lambda found: found.update(key_id="0" * 64),
    "another bit of the signature": _flip("signature", 3),
    "the last bit of the signature": _flip("signature", 63),
    "another bit of the key": _flip("public_key", 3),
    "a key of zeros": lambda found: found.update(public_key=base64.b64encode(bytes(32)).decode()),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("required", [True, False])
def test_a_damaged_signature_is_refused(plan: Path, ada: Key, damage: Callable[[Any], Any], required: bool) -> None:
    ada.sign(plan)
    found = content_of(plan)
    damage(found)
    signing.path_for(plan).write_text(json.dumps(found))
    refused(plan, trusting(ada, required=required))
    refused(plan, TrustSettings())
    ada.sign(plan)
    assert check(plan, trusting(ada, required=required)) == ["ada.pub.pem"]


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[]", b"null", b"[" * 100_000, b" " * 200_000, b"7"], ids=len)
def test_a_file_that_holds_no_signature_is_refused(plan: Path, ada: Key, text: bytes) -> None:
    signing.path_for(plan).write_bytes(text)
    assert "is damaged" in refused(plan, TrustSettings())
    assert "is damaged" in refused(plan, trusting(ada))


def test_a_signature_of_another_plan_is_refused(plan: Path, ada: Key) -> None:
    ada.sign(plan)
    assert "belongs to another plan" in refused(plan, trusting(ada), sha256="6" * 64)


# ---------------------------------------------------------------- keys


def usage(act: Callable[[], Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        act()
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


def test_an_unusable_key_is_reported(plan: Path, ada: Key, tmp_path: Path) -> None:
    rsa = make(tmp_path, "rsa", "rsa")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_bytes(b"-----BEGIN PUBLIC KEY-----\n\xff\n-----END PUBLIC KEY-----\n")
    missing = tmp_path / "missing.pem"
    ada.sign(plan)

    def with_trusted(path: Path) -> str:
        return usage(lambda: check(plan, TrustSettings(False, (str(path),))))

    assert "is a private key, but a public one is needed" in with_trusted(ada.private)
    assert "is not an Ed25519 key" in with_trusted(rsa.public)
    assert "is not a public key in PEM" in with_trusted(nonsense)
    assert "cannot be read: No such file" in with_trusted(missing)
    assert "cannot be read: Is a directory" in with_trusted(tmp_path)
    assert "is a public key, but only a private one can sign" in usage(lambda: signing.private_key(ada.public))
    assert "is not an Ed25519 key" in usage(lambda: signing.private_key(rsa.private))
    assert "openssl genpkey -algorithm ed25519" in usage(lambda: signing.private_key(plan))


def test_a_key_with_a_passphrase_is_told_from_one_without(plan: Path, ada: Key, tmp_path: Path) -> None:
    locked = tmp_path / "locked.pem"
    openssl(
        "pkcs8", "-topk8", "-in", ada.private, "-out", locked, "-passout", "env:PASSPHRASE", passphrase="open sesame"
    )
    assert signing.private_key(locked, lambda: "open sesame").public == signing.private_key(ada.private).public
    assert signing.private_key(ada.private, Mock(side_effect=AssertionError)).public  # is not asked
    assert "does not open with that passphrase" in usage(lambda: signing.private_key(locked, lambda: "open barley"))
    for nothing in (None, ""):
        assert "has a passphrase, but none was given" in usage(lambda: signing.private_key(locked, lambda: nothing))  # noqa: B023


def test_a_passphrase_that_is_not_typed_is_no_bug(ada: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-D at the prompt."""
    locked = tmp_path / "locked.pem"
    openssl("pkcs8", "-topk8", "-in", ada.private, "-out", locked, "-passout", "env:PASSPHRASE", passphrase="sesame")
    monkeypatch.delenv(context.PASSPHRASE, raising=False)
    monkeypatch.setattr(sys, "stdin", Mock(isatty=lambda: True))
    monkeypatch.setattr("getpass.getpass", Mock(side_effect=EOFError))
    with pytest.raises(ConfigError, match=r"No passphrase was given for the key .*locked\.pem"):
        context.private_key(locked)


def test_a_key_that_comes_through_a_pipe_is_read_once(ada: Key, tmp_path: Path) -> None:
    """``--key <(pass show ada)``: a second read would find nothing."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as writer:
        writer.submit(pipe.write_bytes, ada.private.read_bytes())
        assert context.private_key(pipe).public == signing.private_key(ada.private).public


def test_a_private_key_is_not_shown(ada: Key) -> None:
    secret = "".join(ada.private.read_text().splitlines()[1:-1])
    shown = repr(signing.private_key(ada.private))
    assert secret not in shown
    assert shown == f"PrivateKey({signing.private_key(ada.private).public.id[:16]})"


def test_without_the_package_the_extra_is_named(plan: Path, ada: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    ada.sign(plan)
    real = signing.importlib.util.find_spec
    monkeypatch.setattr(
        signing.importlib.util, "find_spec", lambda name: None if name == "cryptography" else real(name)
    )
    said = usage(lambda: check(plan, trusting(ada)))
    assert "pip install 'failover-offset-reconciler[sign]'" in said
    signing.path_for(plan).unlink()
    assert check(plan, TrustSettings()) == []


def test_cryptography_is_not_imported_where_nothing_is_signed() -> None:
    program = (
        "import sys; from reconciler.cli.commands import apply, hook, plan, rollback;"
        "from reconciler.plan import signing; from pathlib import Path;"
        "from reconciler.config.settings import TrustSettings;"
        "signing.check(Path('/nowhere/plan.json'), b'', '', TrustSettings());"
        "print([name for name in sys.modules if name.startswith('cryptography')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert done.stdout == "[]\n"
