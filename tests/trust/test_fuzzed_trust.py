"""Signatures, keys, the audit log and its heads, whatever is in the files: read, or refused with a sentence."""

from __future__ import annotations

import hashlib
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from reconciler.config.settings import TrustSettings
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.formats.json_fields import canonical
from reconciler.trust import audit_log, signing, witness
from tests.fuzz import AS_TYPED, GOLDENS, attempt, documents, fuzz, lines, sized, slips
from tests.golden.keys import write_key

CHANGED, USAGE = ExitCode.CHANGED, ExitCode.USAGE
EXACT = GOLDENS / "exact"
PLAN = (EXACT / "plan.json").read_bytes()
PLAN_SHA256 = json.loads(PLAN)["sha256"]
SIGNATURES = json.loads((EXACT / "plan.json.sig").read_text())
AUDIT_LOG = [json.loads(line) for line in (EXACT / "audit.log").read_text().splitlines()]


@pytest.fixture
def keys(tmp_path: Path) -> TrustSettings:
    """Trusts one of the two who have signed the plan."""
    write_key(tmp_path, "ada")
    return TrustSettings(trusted_keys=(str(tmp_path / "ada.pub.pem"),), require_signature=True)


@sized
def test_any_signatures_are_verified_or_refused_with_a_sentence(runs: int, tmp_path: Path, keys: TrustSettings) -> None:
    plan = tmp_path / "plan.json"
    plan.write_bytes(PLAN)

    def claim(data: bytes) -> None:
        signing.path_for(plan).write_bytes(data)
        signers = attempt(lambda: signing.check(plan, PLAN, PLAN_SHA256, keys), CHANGED)
        if signers is not None:
            found = json.loads(data)["signatures"]
            assert {each.key_id for each in signers} == {each["key_id"] for each in found}
            assert all(each in SIGNATURES["signatures"] for each in found)

    fuzz(runs, documents([SIGNATURES]), claim)


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


# ---------------------------------------------------------------- the audit log


def chained(records: list[Any]) -> list[Any]:
    """The records as a chain that anyone can make."""
    head, made = audit_log.FIRST, []
    for number, record in enumerate(records, start=1):
        if isinstance(record, dict):
            record = {**record, "prev": head, "line": number}
            head = audit_log.hash_of(record)
            record = {**record, "hash": head}
        made.append(record)
    return made


def compact(data: bytes) -> bytes:
    """Lines of JSON as the log has them; others as they are."""
    made = []
    for line in data.split(b"\n"):
        try:
            made.append(canonical(json.loads(line)))
        except (ValueError, RecursionError, AttributeError, UnicodeEncodeError):
            made.append(line)
    return b"\n".join(made)


@sized
def test_any_audit_log_is_verified_or_refused_with_a_sentence(runs: int, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"

    def claim(data: bytes) -> None:
        for content in (data, compact(data)):
            path.write_bytes(content)
            found = attempt(lambda: list(audit_log.verified(path)), CHANGED, USAGE)
            head = attempt(lambda: audit_log.AuditLog(path).append({"kind": "refused"}, "now"), CHANGED, USAGE)
            if head is None:
                assert path.read_bytes() == content, "what is not an audit log is not written to"
            elif found is not None:
                assert len([each for each in audit_log.verified(path) if isinstance(each, dict)]) == head.line

    fuzz(runs, lines(AUDIT_LOG, chained) | lines(AUDIT_LOG) | slips([(EXACT / "audit.log").read_bytes()]), claim)


@sized
def test_any_heads_vouch_or_are_refused_with_a_sentence(runs: int, tmp_path: Path) -> None:
    hashes = {record["line"]: record["hash"] for record in AUDIT_LOG}
    kept = "".join(f"{witness.sentence(Path('audit.log'), line, head)}\n" for line, head in hashes.items())
    path = tmp_path / "heads"

    def claim(data: bytes) -> None:
        path.write_bytes(data)
        found = attempt(lambda: witness.compare(Path("audit.log"), hashes, path), CHANGED, USAGE)
        assert found is None or hashes[found.last].encode() in data

    fuzz(runs, slips([kept.encode(), kept.encode()[:90]]), claim)


# ---------------------------------------------------------------- what is signed


@sized
def test_no_change_of_a_signed_plan_is_believed(runs: int, tmp_path: Path, keys: TrustSettings) -> None:
    plan = tmp_path / "plan.json"
    signing.path_for(plan).write_text(json.dumps(SIGNATURES))

    def claim(data: bytes) -> None:
        for sha256 in (PLAN_SHA256, hashlib.sha256(data).hexdigest()):
            signers = attempt(partial(signing.check, plan, data, sha256, keys), CHANGED)
            assert signers is None or data == PLAN

    fuzz(runs, st.just(PLAN) | slips([PLAN], most=1), claim)


def test_a_key_in_a_variable_that_is_no_text_is_refused() -> None:
    setting = os.fsdecode(b"-----BEGIN PUBLIC KEY-----\xff")
    with pytest.raises(ConfigError, match="is not a public key in PEM"):
        signing.trusted(TrustSettings(trusted_keys=(setting,)))
