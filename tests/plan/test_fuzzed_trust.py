"""Signatures and keys, whatever is in the files: read, or refused with a sentence."""

from __future__ import annotations

import hashlib
import json
import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import strategies as st

from reconciler.config.settings import TrustSettings
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.plan import signing
from tests.fuzz import AS_TYPED, GOLDENS, attempt, documents, fuzz, sized, slips
from tests.golden.keys import write_key

CHANGED, USAGE = ExitCode.CHANGED, ExitCode.USAGE
EXACT = GOLDENS / "exact"
PLAN = (EXACT / "plan.json").read_bytes()
PLAN_SHA256 = json.loads(PLAN)["sha256"]
SIGNATURE = json.loads((EXACT / "plan.json.sig").read_text())


@pytest.fixture
def keys(tmp_path: Path) -> TrustSettings:
    """Trusts the one who has signed the plan."""
    write_key(tmp_path, "ada")
    return TrustSettings(trusted_keys=(str(tmp_path / "ada.pub.pem"),), require_signature=True)


@sized
def test_any_signature_is_verified_or_refused_with_a_sentence(runs: int, tmp_path: Path, keys: TrustSettings) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(PLAN)

    def claim(data: bytes) -> None:
        signing.path_for(plan).write_bytes(data)
        signer = attempt(lambda: signing.check(plan, PLAN, PLAN_SHA256, keys), CHANGED)
        if signer is not None:
            assert json.loads(data) == SIGNATURE

    fuzz(runs, documents([SIGNATURE]), claim)


@sized
def test_any_key_is_one_or_is_refused_with_a_sentence(runs: int, tmp_path: Path, keys: TrustSettings) -> None:
    public = Path(keys.trusted_keys[0]).read_bytes()
    private = (tmp_path / "ada.pem").read_bytes()
    path = tmp_path / "key.pem"

    def claim(data: bytes) -> None:
        path.write_bytes(data)
        texts = [data.decode(errors="surrogateescape")] if b"\0" not in data else []
        for setting in (str(path), *texts):
            attempt(partial(signing.trusted, TrustSettings(trusted_keys=(setting,))), USAGE, longest=AS_TYPED)
        for passphrase in (None, "a passphrase"):
            attempt(partial(signing.private_key, path, passphrase), USAGE)
        attempt(partial(signing.made_elsewhere, path, Path(keys.trusted_keys[0])), USAGE)
        attempt(partial(signing.made_elsewhere, Path(keys.trusted_keys[0]), path), USAGE)

    fuzz(runs, slips([public, private, b"x" * 64]), claim)


# ---------------------------------------------------------------- what is signed


@sized
def test_no_change_of_a_signed_plan_is_believed(runs: int, tmp_path: Path, keys: TrustSettings) -> None:
    plan = tmp_path / "plan.json"
    signing.path_for(plan).write_text(json.dumps(SIGNATURE))

    def claim(data: bytes) -> None:
        for sha256 in (PLAN_SHA256, hashlib.sha256(data).hexdigest()):
            signer = attempt(partial(signing.check, plan, data, sha256, keys), CHANGED)
            assert signer is None or data == PLAN

    fuzz(runs, st.just(PLAN) | slips([PLAN], most=1), claim)


def test_a_key_in_a_variable_that_is_no_text_is_refused() -> None:
    setting = os.fsdecode(b"-----BEGIN PUBLIC KEY-----\xff")
    with pytest.raises(ConfigError, match="is not a public key in PEM"):
        signing.trusted(TrustSettings(trusted_keys=(setting,)))
