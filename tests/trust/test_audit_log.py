"""The audit log: every change to it is detected, a cut-off end is reported, and two writers make one chain."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.core.errors import Changed, ConfigError, ExitCode
from reconciler.trust import audit_log
from reconciler.trust.audit_log import FIRST, AuditLog, RecordInDoubt, TornLine, verified
from reconciler.trust.audit_trail import Attempt
from tests.limits import files_up_to

NOW = "2026-01-31T06:00:00.000Z"


def fields(number: int = 0, **more: Any) -> dict[str, Any]:
    by = {"user": "ada", "uid": 1000, "sudo_user": None, "host": "h", "pid": number, "version": "0.1.0"}
    rows = [{"topic": "a.events", "partition": number, "before": None, "after": 17}]
    jobs = [{"name": "clicks", "group": "g", "store": "memory:", "rows": rows}]
    return {"kind": "intention", "action": "apply", "by": by, "command": ["apply"], "jobs": jobs, **more}


@pytest.fixture(scope="module", autouse=True)
def synced() -> Iterator[list[int]]:
    """The disk is not waited for. Sizes of the files at the time when they would have been synced."""
    sizes: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_log.os, "fsync", lambda file: sizes.append(os.fstat(file).st_size))
        yield sizes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def written(path: Path) -> Path:
    """A log of five records."""
    for number in range(5):
        AuditLog(path).append(fields(number), NOW)
    return path


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def broken(path: Path) -> str:
    with pytest.raises(Changed) as caught:
        list(verified(path))
    assert caught.value.exit_code is ExitCode.CHANGED
    return caught.value.message


# ---------------------------------------------------------------- the format


def test_a_log_is_verified_as_it_was_written(written: Path) -> None:
    records = [record for record in verified(written) if not isinstance(record, TornLine)]
    assert [record["line"] for record in records] == [1, 2, 3, 4, 5]
    assert [record["by"]["pid"] for record in records] == [0, 1, 2, 3, 4]
    assert written.stat().st_mode & 0o777 == 0o600


def test_a_line_is_on_the_disk_before_anything_else_happens(path: Path, synced: list[int]) -> None:
    for number in range(3):
        AuditLog(path).append(fields(number), NOW)
        assert path.stat().st_size in synced[-2:]


def test_the_chain_can_be_followed_without_the_product(written: Path) -> None:
    prev = FIRST
    for line in lines(written):
        record = json.loads(line)
        own = record.pop("hash")
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert (record["prev"], own) == (prev, hashlib.sha256(text.encode()).hexdigest())
        prev = own


def test_invalid_unicode_is_escaped(path: Path) -> None:
    AuditLog(path).append(fields(command=["apply", os.fsdecode(b"plan-\xff.json"), "new\nline", "é"]), NOW)
    (record,) = verified(path)
    assert not isinstance(record, TornLine)
    assert record["command"] == ["apply", r"plan-\udcff.json", "new\nline", "é"]


# ---------------------------------------------------------------- tampering


def test_every_altered_byte_is_detected(path: Path) -> None:
    for _ in range(2):
        AuditLog(path).append({"kind": "nothing"}, NOW)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for other in (whole[place] ^ 1, ord("\n"), ord(" ")):
            if other != whole[place]:
                path.write_bytes(whole[:place] + bytes([other]) + whole[place + 1 :])
                try:
                    seen = [record for record in verified(path) if isinstance(record, TornLine)]
                except Changed:
                    continue
                # All but the last newline: then the last line looks as if its writing had been cut off.
                assert (place, [torn.declared for torn in seen]) == (len(whole) - 1, [False])


@given(st.data())
@settings(max_examples=60)
def test_every_insertion_and_removal_of_bytes_is_detected(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log") / "audit.jsonl"
    for number in range(3):
        AuditLog(path).append(fields(number), NOW)
    whole = path.read_bytes()
    begin = data.draw(st.integers(0, len(whole) - 2))
    end = data.draw(st.integers(begin, len(whole) - 1))
    put_in = data.draw(st.binary(max_size=4) if end > begin else st.binary(min_size=1, max_size=4))
    changed = whole[:begin] + put_in + whole[end:]
    if changed == whole:
        return
    path.write_bytes(changed)
    broken(path)


CHAINS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "the first line deleted": lambda at: at[1:],
    "a line deleted": lambda at: at[:2] + at[3:],
    "two lines swapped": lambda at: [at[0], at[2], at[1], *at[3:]],
    "the last two lines swapped": lambda at: [*at[:3], at[4], at[3]],
    "a line twice": lambda at: [*at[:2], at[1], *at[2:]],
    "the last line twice": lambda at: [*at, at[-1]],
    "a blank line": lambda at: [*at[:2], b"\n", *at[2:]],
    "a blank line at the end": lambda at: [*at, b"\n"],
    "a line of another kind": lambda at: [*at[:2], b"{}\n", *at[2:]],
    "garbage in a line's place": lambda at: [*at[:2], b"garbage\n", *at[3:]],
    "garbage in the last line's place": lambda at: [*at[:4], b"garbage\n"],
    "other line ends": lambda at: [line.replace(b"\n", b"\r\n") for line in at],
    "a byte order mark": lambda at: [b"\xef\xbb\xbf", *at],
}


@pytest.mark.parametrize("change", CHAINS.values(), ids=CHAINS)
def test_moved_lines_are_detected(written: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    written.write_bytes(b"".join(change(lines(written))))
    broken(written)


@pytest.mark.parametrize("content", [b"[source]\nalias = 'a'\n", b"{}\n"])
def test_nothing_is_said_of_what_is_before_the_first_line(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(Changed) as caught:
        list(verified(path))
    assert caught.value.hint == "It was altered, or the file is no audit log."


def test_a_record_that_was_rewritten_with_its_own_hash_breaks_the_next(written: Path) -> None:
    at = lines(written)
    forged = json.loads(at[2]) | {"action": "rollback"}
    text = audit_log.canonical({**forged, "hash": audit_log.hash_of(forged)})
    written.write_bytes(b"".join([*at[:2], text + b"\n", *at[3:]]))
    assert "after record 3" in broken(written)


def test_a_chain_does_not_show_that_its_end_was_cut_off(written: Path) -> None:
    """What it cannot do. For this a hash is kept elsewhere, and `--expect` asks for it."""
    written.write_bytes(b"".join(lines(written)[:3]))
    assert len(list(verified(written))) == 3


# ---------------------------------------------------------------- what may be appended to


@pytest.mark.parametrize("change", [CHAINS["garbage in the last line's place"], CHAINS["a blank line at the end"]])
def test_nothing_is_appended_to_an_end_that_was_altered(
    written: Path, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    written.write_bytes(b"".join(change(lines(written))))
    before = written.read_bytes()
    for act in (AuditLog(written).check, lambda: AuditLog(written).append(fields(), NOW)):
        with pytest.raises(Changed, match="The last line of the audit log"):
            act()
    assert written.read_bytes() == before


def test_an_altered_last_line_differs_from_one_that_was_cut_off(written: Path) -> None:
    *front, last = lines(written)
    written.write_bytes(b"".join([*front, last.replace(b"ada", b"eve")]))
    with pytest.raises(Changed, match="was altered"):
        AuditLog(written).append(fields(), NOW)


JSON, JSONC = b'{\n  "a": 1\n}\n', b'{\n  // a comment\n  "a": 1\n}'


@pytest.mark.parametrize(
    "content", [b"[destination]\n", b"x", b'{"format": "reconciler.plan/1"}\n', b"{}\n", b"\n{", JSON, JSONC]
)
def test_a_file_that_is_not_an_audit_log_is_left_unchanged(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises((ConfigError, Changed)):
        AuditLog(path).append(fields(), NOW)
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", [JSON, JSONC])
def test_a_foreign_file_is_not_called_an_altered_log(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is not an audit log"):
        AuditLog(path).check()


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.symlink_to("/nowhere/at/all")])
def test_a_log_that_cannot_be_written_is_the_configurations_fault(path: Path, make: Callable[[Path], None]) -> None:
    make(path)
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        AuditLog(path).append(fields(), NOW)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "Nothing else was written" in caught.value.message


def test_a_log_that_cannot_be_locked_is_not_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ConfigError, match="No locks available"):
        AuditLog(path).append(fields(), NOW)


# ---------------------------------------------------------------- torn lines


@pytest.mark.parametrize("left", [1, 10, 300])
def test_the_next_record_declares_a_line_that_was_cut_off(written: Path, left: int) -> None:
    whole = lines(written)
    written.write_bytes(b"".join(whole[:4]) + whole[4][:left])
    *_, torn = verified(written)
    assert torn == TornLine(4, left, declared=False)
    AuditLog(written).append(fields(7), NOW)
    *front, torn, told, record = verified(written)
    assert (len(front), torn) == (4, TornLine(4, left, declared=True))
    assert not isinstance(told, TornLine)
    assert not isinstance(record, TornLine)
    assert (told["kind"], told["torn"]["bytes"], record["by"]["pid"]) == ("torn", left, 7)
    assert [record["line"] for record in (told, record)] == [5, 6]


@pytest.mark.parametrize("kept", [1, 5])
def test_a_record_that_lacks_only_its_newline_is_whole_once_another_follows(written: Path, kept: int) -> None:
    written.write_bytes(b"".join(lines(written)[:kept])[:-1])
    assert AuditLog(written).append(fields(7), NOW).line == kept + 1
    assert [record["line"] for record in verified(written)] == [*range(1, kept + 2)]


@pytest.mark.parametrize("end", [b"null", b"{}", b"7", b'""'])
def test_an_end_that_no_record_begins_with_is_not_written_to(written: Path, end: bytes) -> None:
    """A record's beginning is never JSON: this was not cut off, but written."""
    written.write_bytes(altered := written.read_bytes() + end)
    with pytest.raises(Changed, match="is not a record"):
        AuditLog(written).append(fields(), NOW)
    assert written.read_bytes() == altered
    with pytest.raises(Changed, match="is not a record"):
        list(verified(written))


def test_a_first_line_that_was_cut_off_is_declared_too(path: Path) -> None:
    AuditLog(path).append(fields(), NOW)
    path.write_bytes(path.read_bytes()[:50])
    AuditLog(path).append(fields(), NOW)
    assert [isinstance(each, TornLine) for each in verified(path)] == [True, False, False]


@pytest.mark.parametrize("left", range(1, 12))
def test_a_first_line_that_was_cut_off_may_be_very_short(path: Path, left: int) -> None:
    AuditLog(path).append(fields(), NOW)
    path.write_bytes(path.read_bytes()[:left])
    AuditLog(path).append(fields(), NOW)
    assert TornLine(0, left, declared=True) in list(verified(path))


def test_two_first_lines_that_were_cut_off_are_declared_as_one(path: Path) -> None:
    AuditLog(path).append(fields(), NOW)
    path.write_bytes(path.read_bytes()[:5] + b"\n" + path.read_bytes()[:40])
    AuditLog(path).append(fields(), NOW)
    assert TornLine(0, 46, declared=True) in list(verified(path))


def test_a_page_of_zeros_after_a_power_cut_is_a_torn_line(written: Path) -> None:
    written.write_bytes(written.read_bytes() + bytes(4096))
    AuditLog(written).append(fields(), NOW)
    assert TornLine(5, 4096, declared=True) in list(verified(written))


def test_a_torn_line_cannot_be_altered_afterwards(written: Path) -> None:
    with written.open("ab") as file:
        file.write(b'{"action":"apply","by":{"host":"h')
    AuditLog(written).append(fields(), NOW)
    content = written.read_bytes()
    written.write_bytes(content.replace(b'{"action":"apply","by":{"host":"h\n', b'{"action":"apply","by":{"host":"x\n'))
    assert "is not a record" in broken(written)


def full_disk(path: Path, size: int) -> AbstractContextManager[None]:
    """The file can grow by ``size`` bytes."""
    return files_up_to(path.stat().st_size + size)


def appends_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a file with the attribute ``a``: nothing can be taken out of it."""

    def ftruncate(file: int, size: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "ftruncate", ftruncate)


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_full_disk_leaves_the_log_as_it_was(written: Path, size: int) -> None:
    before = written.read_bytes()
    with full_disk(written, size), pytest.raises(ConfigError, match="cannot be written"):
        AuditLog(written).append(fields(8), NOW)
    assert written.read_bytes() == before


def test_a_disk_that_is_full_right_behind_a_torn_lines_end_leaves_a_usable_log(written: Path) -> None:
    with written.open("ab") as file:
        file.write(b'{"action":"apply","by":')
    room = 1  # the newline that ends the torn line
    with full_disk(written, room), pytest.raises(ConfigError, match="cannot be written"):
        AuditLog(written).append(fields(8), NOW)
    AuditLog(written).append(fields(9), NOW)
    assert TornLine(5, 23, declared=True) in list(verified(written))


def test_a_disk_that_fills_up_repeatedly_leaves_a_usable_log(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appends_only(monkeypatch)
    for size in (100, 0, 50, 70):
        with full_disk(written, size), pytest.raises(ConfigError, match="cannot be written"):
            AuditLog(written).append(fields(8), NOW)
    AuditLog(written).append(fields(9), NOW)
    *front, torn, _, record = verified(written)
    assert len(front) == 5
    assert isinstance(torn, TornLine)
    assert (torn.declared, torn.bytes) == (True, 220)
    assert not isinstance(record, TornLine)
    assert record["by"]["pid"] == 9


# ---------------------------------------------------------------- a disk that fails


@contextmanager
def failing_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is written can be read, and never reaches the disk."""

    def fsync(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        yield


def test_a_record_that_does_not_reach_the_disk_is_not_in_the_log(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = written.read_bytes()
    with failing_disk(monkeypatch), pytest.raises(ConfigError, match="Input/output error") as caught:
        AuditLog(written).append(fields(8), NOW)
    assert not isinstance(caught.value, RecordInDoubt)
    assert written.read_bytes() == before


def test_an_intention_that_cannot_be_taken_out_is_said_and_does_not_stay_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appends_only(monkeypatch)
    attempt = Attempt(AuditLog(path), "apply", {}, (), lambda: 0)
    with pytest.raises(RecordInDoubt, match="The record may be in it"), attempt, failing_disk(monkeypatch):
        attempt.intends(())
    intention, result = [record for record in verified(path) if not isinstance(record, TornLine)]
    assert (result["of"], result["outcome"]) == (intention["hash"], "refused")


# ---------------------------------------------------------------- long lines, many writers


def test_the_last_record_is_found_after_a_very_long_line(path: Path) -> None:
    for size in (1, 300_000, 5):
        AuditLog(path).append(fields(message="x" * size), NOW)
    path.write_bytes(path.read_bytes() + b'{"action":' + b"y" * 200_000)
    AuditLog(path).append(fields(), NOW)
    assert [isinstance(each, TornLine) for each in verified(path)] == [False, False, False, True, False, False]


def _append(path: Path, begin: Any, number: int) -> None:
    begin.wait(60)
    for count in range(20):
        AuditLog(path).append(fields(number * 100 + count), NOW)


def test_many_writers_make_one_chain(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    begin = context.Barrier(4)
    writers = [context.Process(target=_append, args=(path, begin, number)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0] * 4
    pids = [record["by"]["pid"] for record in verified(path) if not isinstance(record, TornLine)]
    assert sorted(pids) == [number * 100 + count for number in range(4) for count in range(20)]
