"""A checkpoint as a store: the offsets of a restart, errors that name the file, and that nothing is ever written."""

from __future__ import annotations

import os

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, Refused, Unreachable
from reconciler.places.checkpoint import reading
from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.places.checkpoint.restart import LateLog, Tracking
from reconciler.places.folder import LocalFolder
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from tests.failover.checkpoint.checkpoint_files import PLANNED, Files
from tests.places.store_cases import NOW


class Written(Files):
    """A checkpoint's files, as Spark writes them."""

    def planned(self, batch: int, *offsets: dict | str) -> None:
        super().planned(batch, *offsets)
        entry = self.path / f"offsets/{batch}"
        entry.write_text(entry.read_text().replace(str(PLANNED), str(PLANNED + batch)))

    def rows(self, topics=None):
        store = open_store(f"checkpoint:{self.path}")
        return {(row.key.topic, row.key.partition): row.stored for row in store.read("any group", topics)}

    def notes(self):
        return {row.note for row in open_store(f"checkpoint:{self.path}").read("g")}


@pytest.fixture
def written(tmp_path) -> Written:
    return Written(tmp_path / "checkpoint")


def at(offset: int, batch: int | None) -> StoredOffset:
    return StoredOffset(offset, None, None if batch is None else PLANNED + batch)


def test_the_rows_are_the_start_of_the_next_batch(written):
    written.began({"o": {"0": 0, "1": 0}, "p": {"0": 0}})
    for batch in range(2):
        written.planned(batch, {"o": {"0": 10 * batch, "1": 20}, "p": {"0": 7}})
        written.done(batch)
    assert written.rows() == {("o", 0): at(10, 1), ("o", 1): at(20, 1), ("p", 0): at(7, 1)}
    assert list(written.rows(["p"])) == [("p", 0)]
    assert written.rows([]) == {}
    assert written.notes() == {""}


def test_the_end_of_an_uncommitted_batch_has_its_own_address(written):
    ends = open_store(f"checkpoint:{written.path}?position=end")
    assert ends.address == f"checkpoint:{written.path}?position=end"
    written.planned(4, {"o": {"0": 40}})
    written.done(4)
    assert ends.read("g") == []
    written.planned(5, {"o": {"0": 50, "1": 3}})
    assert {(row.key.topic, row.key.partition): row.stored for row in ends.read("g")} == {
        ("o", 0): at(50, 5),
        ("o", 1): at(3, 5),
    }


def test_an_uncommitted_batch_is_noted_and_its_start_is_the_row(written):
    written.began({"o": {"0": 0}})
    written.planned(4, {"o": {"0": 40}})
    written.done(4)
    written.planned(5, {"o": {"0": 50, "1": 3}})
    assert written.rows() == {("o", 0): at(40, 4)}, "partition 1 came with the batch and has no beginning yet"
    assert written.notes() == {"batch 5 is not committed and is repeated up to offset 50"}
    found = read_checkpoint(str(written.path))
    assert (found.query_id, found.last.batch, found.before.batch) == ("86b8d69f-40e2-47bc-acd1-662df118fed0", 5, 4)
    assert found.repeats_a_batch
    assert found.positions[0].end == {("o", 0): 50, ("o", 1): 3}


def test_before_the_first_commit_the_rows_are_where_the_sources_began(written):
    assert written.rows() == {}
    written.began({"o": {"0": 3}})
    assert written.rows() == {("o", 0): at(3, None)}
    written.planned(0, {"o": {"0": 9}})
    assert written.rows() == {("o", 0): at(3, None)}
    written.done(0)
    assert written.rows() == {("o", 0): at(9, 0)}


def test_of_two_sources_of_one_topic_the_lower_offset_counts(written):
    written.planned(1, {"o": {"0": 40}}, {"o": {"0": 25}})
    written.done(1)
    assert written.rows() == {("o", 0): at(25, 1)}
    assert written.notes() == {"the query reads it with 2 sources, the furthest at offset 40"}


def test_old_entries_may_be_removed_and_numbers_missing(written):
    written.planned(996, {"o": {"0": 4}})
    written.done(996)
    written.planned(1000, {"o": {"0": 5}})
    assert written.rows() == {("o", 0): at(4, 996)}
    (note,) = written.notes()
    assert note.startswith(
        "batch 1000 is not committed and is repeated up to offset 5; offsets/997 to offsets/999: left out by "
        "asynchronous progress tracking, or lost. If it was lost, Spark needs offsets/999"
    )
    assert note.endswith("(the last one in its log: 0.0 s, 1 offsets)")


def test_entries_written_at_the_end_of_batches_tell_of_real_time_mode(written):
    for batch, ends in ((3, 30), (4, 75)):
        written.planned(batch, {"o": {"0": ends}})
        file = written.path / f"offsets/{batch}"
        file.write_text(file.read_text().replace(str(PLANNED + batch), str(PLANNED + 5000 * batch)))
        os.utime(file, ns=(0, (PLANNED + 5000 * (batch + 1)) * 1_000_000))
        written.done(batch)
    found = reading.read_folder(LocalFolder(str(written.path))).behind
    ended = PLANNED + 5000 * 5
    assert found == LateLog(Tracking.REAL_TIME, 4, 5000, ended)
    assert written.notes() == {f"{found.words(45)}"}
    assert written.rows() == {("o", 0): StoredOffset(75, None, PLANNED + 5000 * 4, ended)}
    (written.path / "commits/4").unlink()
    assert written.rows() == {("o", 0): StoredOffset(30, None, PLANNED + 5000 * 3, PLANNED + 5000 * 4)}


def test_a_version_changes_with_every_change_and_with_another_query(written):
    written.began({"o": {"0": 3}})
    store = open_store(f"checkpoint:{written.path}")
    seen = [store.read("g")[0].version]
    for step in (lambda: written.planned(0, {"o": {"0": 3}}), lambda: written.done(0)):
        step()
        seen.append(store.read("g")[0].version)
    written.planned(1, {"o": {"0": 3}})
    written.done(1)
    seen.append(store.read("g")[0].version)
    written.put("metadata", '{"id":"another"}')
    seen.append(store.read("g")[0].version)
    assert seen[0] == seen[1], "a restart reads the same"
    assert len(set(seen)) == 4
    assert store.read("g") == store.read("h")


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("offsets/1", "v3\n\n{}", "offsets/1 is not understood: it has version v3"),
        ("offsets/1", 'v1\n\n{"o":{"0":-1}}', "offsets/1 has -1 for o-0, which is no offset: Spark takes"),
        ("offsets/1", 'v1\n\n{"o":{"0":2}}\n{"p":{"0":2}}', "offsets/1 is not understood: it has 2 sources"),
        ("metadata", "x", "metadata is not understood: it is not JSON"),
    ],
)
def test_a_file_that_is_not_understood_is_named(written, name, text, problem):
    written.began({"o": {"0": 0}})
    for batch in range(2):
        written.planned(batch, {"o": {"0": batch}})
    written.put(name, text)
    with pytest.raises(Refused) as caught:
        written.rows()
    assert f"{written.path}/{problem}" in caught.value.message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('\0v2\n{"o":{"0":0}}', "sources/0/0 is not understood: it has version v2"),
        ("", "sources/0/0 has no Kafka offsets, so where source 0 began is not known"),
        ('v1\n{"o":{"0":0}}', "sources/0/0 has no Kafka offsets, so where source 0 began is not known"),
        (None, "sources/0/0 is missing, so where source 0 began is not known"),
    ],
)
def test_where_a_source_began_is_read_only_where_a_restart_reads_it(written, text, problem):
    if text is not None:
        written.put("sources/0/0", text)
    written.planned(0, {"o": {"0": 1}})
    with pytest.raises(Refused) as caught:
        written.rows()
    assert f"{written.path}/{problem}" in caught.value.message
    written.done(0)
    assert written.rows() == {("o", 0): at(1, 0)}


@pytest.mark.parametrize("text", ["", "\n", "\0" * 200, "v1", "v1\n{", 'v1\n{}\n{"o":{"0"'])
def test_the_newest_entry_that_a_crash_cut_off_is_of_a_batch_that_was_never_begun(written, text):
    for batch in range(2):
        written.planned(batch, {"o": {"0": batch}})
        written.done(batch)
    written.put("offsets/2", text)
    with pytest.raises(Refused) as caught:
        written.rows()
    assert "batch 2 was never begun" in caught.value.hint
    assert f"remove {written.path}/offsets/2" in caught.value.hint
    written.done(2)
    with pytest.raises(Refused) as caught:
        written.rows()
    assert "remove" not in caught.value.hint, "its offsets are lost"
    (written.path / "commits/2").unlink()
    (written.path / "offsets/2").unlink()
    assert written.rows() == {("o", 0): at(1, 1)}


def test_a_commit_that_a_crash_cut_off_may_be_removed(written):
    written.planned(0, {"o": {"0": 1}})
    written.put("commits/0", "")
    with pytest.raises(Refused) as caught:
        written.rows()
    assert "remove it: Spark then repeats batch 0" in caught.value.hint


def test_a_checkpoint_that_has_lost_its_offset_log_is_not_taken_for_a_new_querys(written):
    """Its rows would be those of the sources' beginning."""
    written.began({"o": {"0": 1}})
    for batch in range(3):
        written.planned(batch, {"o": {"0": batch + 1}})
        written.done(batch)
    for entry in (written.path / "offsets").iterdir():
        entry.unlink()
    with pytest.raises(Refused, match="has committed batch 2, and no batch's offsets") as caught:
        written.rows()
    assert "restore it whole" in caught.value.hint


def test_a_folder_without_checkpoint_and_a_missing_folder_are_distinguished(tmp_path):
    (tmp_path / "data").mkdir()
    with pytest.raises(Refused, match=f"{tmp_path}/data is no checkpoint of a streaming query") as caught:
        open_store(f"checkpoint:{tmp_path}/data").read("g")
    assert "checkpointLocation" in caught.value.hint
    with pytest.raises(Refused, match=f"{tmp_path}/none does not exist"):
        open_store(f"checkpoint:{tmp_path}/none").read("g")


def test_nothing_is_ever_written(written):
    written.planned(0, {"o": {"0": 1}})
    written.done(0)
    before = {file: file.read_bytes() for file in sorted(written.path.rglob("*")) if file.is_file()}
    store = open_store(f"checkpoint:{written.path}")
    store.create()
    (row,) = store.read("g")
    change = Change(row.key, row.version, StoredOffset(5))
    for attempt in (
        lambda: store.check_writable("g"),
        lambda: store.write("g", [change], reason="t", now_ms=NOW),
        lambda: store.write("g", [Change(TopicPartition("p", 0), None, StoredOffset(1))], reason="t", now_ms=NOW),
    ):
        with pytest.raises(Refused, match="is read-only; nothing was written") as caught:
            attempt()
        assert "the job's hook, copies it" in caught.value.hint
    assert store.write("g", [], reason="t", now_ms=NOW).written == ()
    assert {file: file.read_bytes() for file in sorted(written.path.rglob("*")) if file.is_file()} == before
    assert (store.capabilities.writable, store.capabilities.keeps_anchors) == (False, False)


def test_a_checkpoint_is_read_again_if_the_query_removes_files_meanwhile(written, monkeypatch):
    written.planned(0, {"o": {"0": 1}})
    written.done(0)
    read = LocalFolder.read
    gone = []

    def read_late(self, name):
        if name == "offsets/0" and not gone:
            gone.append(name)
            written.planned(200, {"o": {"0": 2}})
            written.done(200)
            os.unlink(written.path / "offsets" / "0")
            os.unlink(written.path / "commits" / "0")
        return read(self, name)

    monkeypatch.setattr(LocalFolder, "read", read_late)
    assert written.rows() == {("o", 0): at(2, 200)}


def test_a_checkpoint_whose_files_keep_vanishing_is_an_error_in_time(written, monkeypatch):
    written.planned(0, {"o": {"0": 1}})
    monkeypatch.setattr(reading, "PATIENCE_S", 0.0)

    def gone(self, name):
        raise FileNotFoundError(name)

    monkeypatch.setattr(LocalFolder, "read", gone)
    with pytest.raises(Unreachable, match="vanish while they are read"):
        written.rows()


def test_a_link_to_a_file_that_is_gone_is_named_at_once(written, monkeypatch):
    written.planned(0, {"o": {"0": 1}})
    written.planned(1, {"o": {"0": 2}})
    monkeypatch.setattr(reading, "sleep", lambda _: pytest.fail("a link that leads nowhere was waited for"))
    link = written.path / "offsets" / "0"
    link.unlink()
    link.symlink_to(written.path / "restored")
    with pytest.raises(Refused, match=rf"offsets/0 is a link to {written.path}/restored, which does not exist"):
        written.rows()


def test_a_checkpoint_is_read_through_fsspec_wherever_it_is(written):
    import fsspec

    written.began({"o": {"0": 3}})
    written.planned(7, {"o": {"0": 9}})
    written.done(7)
    memory = fsspec.filesystem("memory")
    memory.put(str(written.path), "/checkpoints/query", recursive=True)
    store = open_store("checkpoint:memory://checkpoints/query")
    assert [(row.key, row.stored) for row in store.read("g")] == [(TopicPartition("o", 0), at(9, 7))]
    assert open_store(f"checkpoint:file://{written.path}").read("g") == store.read("g")
    assert read_checkpoint("memory://checkpoints/query").last.batch == 7


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("checkpoint:", "names no checkpoint"),
        ("checkpoint:/x?group=g", "takes no parameter 'group'"),
        ("checkpoint:nosuchfs://x", "fsspec knows no file system"),
    ],
)
def test_the_error_for_a_wrong_address_shows_a_right_one(address, problem):
    with pytest.raises(ConfigError) as caught:
        open_store(address)
    assert problem in caught.value.message
