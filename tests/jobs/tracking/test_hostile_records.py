"""Hostile records: any payload or header is an id, a time, or neither, and never a failure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from reconciler.config.identity import identity_from_spec
from reconciler.core.anchors import Record

DEEP = 100_000


@dataclass(frozen=True, slots=True)
class Made:
    """A record."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = 0
    timestamp_ms: int | None = 1
    append_time: bool = False


PAYLOADS: dict[str, Callable[[], bytes]] = {
    "lists without end": lambda: b"[" * DEEP,
    "lists within lists": lambda: b'{"id": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "lists that can just be read": lambda: b'{"id": ' + b"[" * 900 + b"]" * 900 + b"}",
    "objects within objects": lambda: b'{"id":' * DEEP + b"1" + b"}" * DEEP,
    "an endless number": lambda: b'{"id": ' + b"9" * 1_000_000 + b"}",
    "an endless fraction": lambda: b'{"id": 0.' + b"9" * 1_000_000 + b"}",
    "a number beyond all floats": lambda: b'{"id": 1e999999}',
    "no number": lambda: b'{"id": NaN}',
    "an endless text": lambda: b'{"id": "' + b"x" * 1_000_000 + b'"}',
    "digits as text": lambda: b'{"id": "' + b"9" * 1_000_000 + b'"}',
    "a key a hundred thousand times": lambda: b"{" + b", ".join([b'"id": 1'] * 100_000) + b"}",
    "half a character": lambda: b'{"id": "\\ud800"}',
    "a NUL": lambda: b'{"id": "\\u0000"}',
    "another encoding": lambda: '{"id": 7}'.encode("utf-16"),
    "no encoding": lambda: b'{"id": "\xff"}',
    "a day that never was": lambda: b'{"id": "0001-01-01T00:00:00+23:59"}',
    "the last of all days": lambda: b'{"id": "9999-12-31T23:59:59.999999-23:59"}',
    "16 MB of nothing": lambda: b" " * (16 << 20),
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize("unit", ["s", "ns"])
def test_a_payload_is_read_or_not(payload: Callable[[], bytes], unit: str) -> None:
    identity = identity_from_spec("json:$.id", "json:$.id", unit=unit)
    record: Record = Made(payload())
    assert identity.id_of is not None
    found, time = identity.id_of(record), identity.timestamp_of(record)
    assert found is None or isinstance(found, bytes)
    assert time is None or -(2**63) <= time < 2**63


HEADERS: dict[str, Callable[[], tuple[tuple[str, bytes | None], ...]]] = {
    "a hundred thousand": lambda: tuple((f"h{number}", b"x") for number in range(100_000)),
    "the same name, often": lambda: (("id", b"1"),) * 100_000,
    "a megabyte": lambda: (("id", b"9" * (1 << 20)),),
    "null": lambda: (("id", None),),
    "no text": lambda: (("id", b"\xff\xfe\x00"),),
    "an empty name": lambda: (("", b"x"),),
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
def test_headers_are_read_or_not(headers: Callable[[], tuple[tuple[str, bytes | None], ...]]) -> None:
    identity = identity_from_spec("header:id", "header:id")
    record: Record = Made(b"", headers=headers())
    assert identity.id_of is not None
    assert identity.id_of(record) == next((value for name, value in reversed(record.headers) if name == "id"), None)
    assert identity.timestamp_of(record) in (1, None)


@pytest.mark.parametrize("raised", [ValueError("secret payload"), RecursionError(), MemoryError(), SystemExit(0)])
def test_what_a_function_of_the_users_raises_is_no_id_and_is_logged_without_the_record(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, raised: BaseException
) -> None:
    def moody(_: Record) -> bytes:
        raise raised

    monkeypatch.setattr("reconciler.jobs.tracking.track.moody", moody, raising=False)
    id_of = identity_from_spec(id="python:reconciler.jobs.tracking.track:moody").id_of
    assert id_of is not None
    assert id_of(Made(b"secret payload")) is None
    assert "treated as no id" in caplog.text
    assert "secret payload" not in caplog.text
