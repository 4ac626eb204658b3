"""A snapshot that someone has edited: what it would put back is compared with the plan and with the destination."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden.corpus import HEAD, OFFSETS, Estate, content, deliver, job, stored
from tests.golden.internals import Anchor, StoredOffset, fingerprint
from tests.golden.keys import write_key
from tests.golden.world import World
from tests.starting import with_state

CONFIG = ("-c", "reconciler.toml")
SNAPSHOT = "p.json.applied.json"
Row = dict[str, Any]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def own(number: int, *, offset: int | None = None, by: int | None = None) -> StoredOffset:
    """A row in the destination's numbers, right after record ``number``; its content is that of record ``by``."""
    stamp, key, value = content(number if by is None else by)
    anchor = Anchor(number, stamp, None, fingerprint(key, value), "cluster-b", "cluster-b/a.events")
    return StoredOffset(number + 1 if offset is None else offset, anchor, 1)


def applied(world: World, *more: str, before: StoredOffset | None = None, policy: str = "", trust: str = "") -> World:
    """A job that was moved from the source's 706 to the destination's 6; there were records up to 20."""
    topic = "events" if policy else "a.events"
    deliver(world, topic, range(20))
    world.store(OFFSETS, "clicks", {("events", 0): stored(5)})
    if before is not None:
        world.store(OFFSETS, "clicks", {("a.events", 0): before})
    world.file("reconciler.toml", HEAD + policy + trust + job("clicks", ["events"], id="none"))
    with_state(world.folder / "reconciler.toml")
    assert world.run("plan", *CONFIG, "-o", "p.json", *more).code == 0
    if trust:
        assert world.run("sign", "p.json", "--key", "ada.pem", "--yes").code == 0
    ended = world.run("apply", "p.json", *CONFIG, "--yes")
    assert ended.code == 0, ended.err
    return world


def edited(world: World, edit: Callable[[Row], object]) -> None:
    """The snapshot, with its row edited by hand."""
    path = world.folder / SNAPSHOT
    whole = json.loads(path.read_text())
    edit(whole["rows"][0])
    path.write_text(json.dumps(whole))


def before_at(offset: int, anchor: Anchor | None = None) -> Callable[[Row], object]:
    """An edit that puts back ``offset``, and an anchor of one's choice."""

    def edit(row: Row) -> None:
        line = dict(row["after"]["line"], stored_offset=offset, anchor=None)
        if anchor is not None:
            id_base64 = None if anchor.id is None else base64.b64encode(anchor.id).decode()
            line["anchor"] = {
                "offset": anchor.offset,
                "timestamp_ms": anchor.timestamp_ms,
                "id_base64": id_base64,
                "fingerprint": anchor.fingerprint,
                "cluster_id": anchor.cluster_id,
                "topic_id": anchor.topic_id,
            }
        row["before"] = {"written_at_ms": 1, "line": line, "text": None}

    return edit


def refused(world: World, code: int, *more: str) -> str:
    """A rollback that ends with ``code``, and has written nothing."""
    rows = world.tables("offsets.db")
    ended = world.run("rollback", "p.json", *CONFIG, "--yes", *more)
    assert (ended.code, world.tables("offsets.db")) == (code, rows), ended.err
    assert world.run("check", *CONFIG, "--to", "b").code == 0, "check is not disturbed by what lies beside the plan"
    return ended.out + ended.err


def key(world: World, name: str) -> str:
    """The ``[trust]`` table that requires this new key's signature."""
    write_key(world.folder, name)
    return f'[trust]\nrequire_signature = true\ntrusted_keys = ["{world.folder / name}.pub.pem"]\n'


# ---------------------------------------------------------------- what was seen is put back


@pytest.mark.parametrize("before", [None, own(3)], ids=["no row", "a row"])
def test_a_whole_snapshot_is_the_way_back(world: World, before: StoredOffset | None) -> None:
    applied(world, before=before)
    ended = world.run("rollback", "p.json", *CONFIG, "--yes")
    assert ended.code == 0, ended.err
    assert ("SKIPS" in ended.out) == (before is not None)


def test_a_signed_plan_vouches_for_the_rows_it_replaces(world: World) -> None:
    applied(world, before=own(3), trust=key(world, "ada"))
    assert world.run("rollback", "p.json", *CONFIG, "--yes").code == 0


def test_the_sources_row_is_put_back_without_being_compared(world: World) -> None:
    applied(world, policy='[topics]\npolicy = "identity"\n')
    ended = world.run("rollback", "p.json", *CONFIG, "--yes")
    assert (ended.code, "706" in ended.out, "SKIPS" in ended.out) == (0, True, False)


# ---------------------------------------------------------------- what skips, and what was never there

OFFSETS_BEFORE: dict[str, tuple[Callable[[Row], object], int, str]] = {
    "records are skipped": (before_at(15), 4, "skips 9 records"),
    "records are skipped, with an anchor that is there": (before_at(15, own(14).anchor), 4, "skips 9 records"),
    "beyond the end": (before_at(21), 5, "the log ends at 20"),
    "far beyond the end": (before_at(2**63 - 1), 5, "the log ends at 20"),
    "an anchor of a later record": (before_at(2, own(14).anchor), 5, "does not have there"),
    "an anchor that is another record": (before_at(4, own(3, by=14).anchor), 5, "does not have there"),
    "an anchor of the source": (before_at(2, stored(14).anchor), 5, "does not vouch"),
}


@pytest.mark.parametrize("case", OFFSETS_BEFORE, ids=OFFSETS_BEFORE.keys())
@pytest.mark.parametrize("before", [None, own(3)], ids=["no row", "a row"])
def test_an_edited_offset_skips_nothing(world: World, case: str, before: StoredOffset | None) -> None:
    edit, code, why = OFFSETS_BEFORE[case]
    applied(world, before=before)
    edited(world, edit)
    assert why in refused(world, code)


def test_what_is_skipped_can_be_accepted_and_what_is_replayed_is_shown(world: World) -> None:
    applied(world)
    edited(world, before_at(15))
    ended = world.run("rollback", "p.json", *CONFIG, "--yes", "--accept", "skips")
    assert (ended.code, "9 records" in ended.out) == (0, True), ended.err


def test_a_replay_is_shown(world: World) -> None:
    applied(world)
    edited(world, before_at(2))
    ended = world.run("rollback", "p.json", *CONFIG)
    assert (ended.code, "≤ 4" in ended.out) == (2, True), ended.out


def test_an_edited_row_of_the_source_is_compared_like_any_offset(world: World) -> None:
    applied(world, policy='[topics]\npolicy = "identity"\n')
    edited(world, lambda row: row["before"]["line"].update(stored_offset=707))
    assert "does not vouch" in refused(world, 5)


@pytest.mark.parametrize("before", [None, own(3)], ids=["no row", "a row"])
@pytest.mark.parametrize(
    "edit",
    [before_at(15), before_at(2), before_at(4, own(3).anchor), lambda row: row.update(before=None)],
    ids=["an offset that skips", "an offset that replays", "the same offset, another time", "no row"],
)
def test_a_signed_plan_vouches_for_no_other_row(
    world: World, edit: Callable[[Row], object], before: StoredOffset | None
) -> None:
    applied(world, before=before, trust=key(world, "ada"))
    whole = json.loads((world.folder / SNAPSHOT).read_text())
    edited(world, edit)
    if json.loads((world.folder / SNAPSHOT).read_text()) != whole:  # there may have been no row before
        refused(world, 5, "--accept", "skips")


# ---------------------------------------------------------------- read as strictly as a plan


def twice(text: str) -> str:
    """The first offset before, a second time under the same key."""
    at = text.index('"stored_offset": ')
    return text[:at] + '"stored_offset": 3, ' + text[at:]


MANGLED: dict[str, Callable[[Row], object]] = {
    "a text for a time": lambda row: row["before"].update(written_at_ms="yesterday"),
    "a time of true": lambda row: row["before"].update(written_at_ms=True),
    "a time beyond 64 bits": lambda row: row["before"].update(written_at_ms=2**70),
    "a field too much": lambda row: row.update(note="harmless"),
    "a field too much before": lambda row: row["before"].update(note="harmless"),
    "no time": lambda row: row["before"].pop("written_at_ms"),
    "no line": lambda row: row["before"].pop("line"),
    "a number for a job": lambda row: row.update(job=7),
    "another job": lambda row: row.update(job="views"),
    "another group": lambda row: [row[side]["line"].update(group="views") for side in ("before", "after")],
    "another group before": lambda row: row["before"]["line"].update(group="views"),
    "another partition before": lambda row: row["before"]["line"].update(partition=1),
    "another topic before": lambda row: row["before"]["line"].update(topic="events"),
    "another offset after": lambda row: row["after"]["line"].update(stored_offset=7),
    "another anchor after": lambda row: row["after"]["line"]["anchor"].update(offset=14),
    "no anchor after": lambda row: row["after"]["line"].update(anchor=None),
    "a text that is none": lambda row: row["before"].update(text=["3"]),
}


@pytest.mark.parametrize("edit", MANGLED.values(), ids=MANGLED.keys())
def test_a_snapshot_is_read_as_strictly_as_a_plan(world: World, edit: Callable[[Row], object]) -> None:
    applied(world, before=own(3))
    edited(world, edit)
    refused(world, 5)


def test_a_key_or_a_row_twice_is_refused(world: World) -> None:
    applied(world, before=own(3))
    path = world.folder / SNAPSHOT
    whole = path.read_text()
    path.write_text(twice(whole))
    assert "repeats a key" in refused(world, 5)
    snapshot = json.loads(whole)
    path.write_text(json.dumps(snapshot | {"rows": snapshot["rows"] * 2}))
    assert "two rows for one partition" in refused(world, 5)


def test_apply_reads_a_snapshot_as_strictly_before_it_adds_to_it(world: World) -> None:
    Estate(world)
    assert world.run("plan", *CONFIG, "--job", "clicks", "-o", "p.json").code == 0
    world.file(SNAPSHOT, '{"format": "reconciler.snapshot/1"}')
    rows = world.tables("offsets.db")
    assert world.run("apply", "p.json", *CONFIG, "--yes").code == 5
    assert world.tables("offsets.db") == rows
