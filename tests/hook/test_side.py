"""On which side a hook starts a job: by its rows, by a mark, by a person's word; and that nothing is moved unasked."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from reconciler.checkpoints.reading import MANIFEST, anchors_field
from reconciler.clock import stamp
from reconciler.config.file import Config, load_config
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, ExitCode, NeedsPerson, ReconcilerError, Refused, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.outside import Outside
from reconciler.formats.start import Side
from reconciler.hook.marks import Mark, Marks
from reconciler.hook.side import Chosen, choose, numberings, offsets_at_source
from reconciler.kafka.memory import MemoryLog
from reconciler.mirror import reading
from reconciler.ports import TopicPartition
from reconciler.stores.checkpoint import open_address as open_checkpoint
from reconciler.stores.memory import MemoryStore
from tests.checkpoints.checkpoint_files import Files
from tests.in_memory import BASE, GROUP, NOW, Memory, anchor, content, stored
from tests.mirror.written import limit_reading, write_checkpoints

IDENTITY = '[topics]\npolicy = "identity"\n'
MARK = Mark("2026-01-31T06:00:00Z", "me@here")


class Away:
    """A destination that nothing may be asked of."""

    def __getattr__(self, name: str) -> Any:
        raise Unreachable("The destination is away.")


def chosen(memory: Memory, extra: str = "", *, alone: bool = False, **more: Any) -> Chosen:
    config = memory.config(extra)
    over = count(step=60.0).__next__
    outside = replace(memory.outside, reader=Away(), monotonic=over) if alone else memory.outside
    return choose(config, config.jobs[0], outside, **{"word": None, "mark": None, **more})


def side(memory: Memory, extra: str = "", **more: Any) -> Side:
    return chosen(memory, extra, **more).side


def refusal(memory: Memory, extra: str = "", **more: Any) -> ReconcilerError:
    with pytest.raises(ReconcilerError) as caught:
        chosen(memory, extra, **more)
    return caught.value


@pytest.fixture
def ready(memory: Memory) -> Memory:
    """Records 0 to 9 are at the destination; the job has stored nothing."""
    memory.deliver(range(10))
    return memory


# ---------------------------------------------------------------- by the rows


def test_a_job_with_rows_of_the_source_starts_there_and_no_cluster_is_asked(ready: Memory) -> None:
    ready.save({0: stored(4)})
    before = ready.rows()
    assert side(ready, alone=True) is Side.SOURCE
    assert ready.rows() == before


def test_a_job_without_rows_starts_at_the_source(ready: Memory) -> None:
    assert side(ready, alone=True) is Side.SOURCE


def test_a_job_that_was_handed_over_starts_at_the_destination(ready: Memory) -> None:
    ready.save({0: stored(4)})
    ready.apply()
    assert side(ready) is Side.DESTINATION
    assert "lives at the destination" in refusal(ready, word=Side.SOURCE).message


def test_a_job_that_went_back_starts_there_without_the_destination(ready: Memory) -> None:
    """A failback leaves the destination's rows. They are older, and need no cluster to say whose they are."""
    ready.save({0: stored(4)})
    ready.apply()
    ready.save({0: stored(8, written_at_ms=NOW + 2)})
    assert side(ready, alone=True) is Side.SOURCE


@pytest.mark.parametrize("word", [None, Side.SOURCE])
def test_rows_of_a_third_cluster_under_the_destinations_name_start_nothing(ready: Memory, word: Side | None) -> None:
    """The destination was rebuilt since, or [clusters] names another cluster: the source's row is old."""
    ready.save({0: stored(4, written_at_ms=NOW - 1)})
    ready.save({0: StoredOffset(9, anchor(8, 8, "rebuilt"), NOW)}, topic="a.events")
    found = refusal(ready, word=word)
    assert (type(found), "in the numbering of rebuilt, which is another cluster" in found.message) == (
        NeedsPerson,
        True,
    )
    assert side(ready, word=Side.DESTINATION) is Side.DESTINATION
    row = ready.row()
    assert (row.stored_offset, row.resume_offset) == (9, ready.own(8).offset), "the newer row speaks"
    ready.save({0: stored(8, written_at_ms=NOW + 1)})
    assert side(ready, word=word) is Side.SOURCE


@pytest.mark.parametrize("word", [None, Side.SOURCE])
@pytest.mark.parametrize("theirs", [None, replace(anchor(4), cluster_id=None, topic_id=None)])
def test_a_row_of_the_source_that_names_no_cluster_hides_no_third_one(
    ready: Memory, word: Side | None, theirs: Anchor | None
) -> None:
    """An unprepared job was failed over by what the mirror recorded: its row of the source never had an anchor."""
    ready.save({0: StoredOffset(BASE + 5, theirs, NOW - 60_000)})
    ready.save({0: StoredOffset(9, anchor(8, 8, "rebuilt"), NOW)}, topic="a.events")
    found = refusal(ready, word=word)
    assert "in the numbering of rebuilt, which is another cluster" in found.message
    row = ready.row()
    assert (row.stored_offset, row.resume_offset) == (9, ready.own(8).offset), "the newer row speaks"
    ready.save({0: stored(8, written_at_ms=NOW + 1)})
    assert side(ready, word=word) is Side.SOURCE


def later_without_an_anchor(memory: Memory, partition: int = 0) -> None:
    """The job is at the destination by its anchors, and has a row of the source that is later and has none."""
    memory.save({partition: StoredOffset(BASE + 9, None, NOW + 60_000)})


@pytest.mark.parametrize("cluster", ["b", "rebuilt"])
def test_a_later_row_of_the_source_without_an_anchor_needs_a_word(ready: Memory, cluster: str) -> None:
    """The job went back, and a version of it that records no anchors has run there since."""
    ready.save({0: StoredOffset(5, replace(ready.own(5).anchor, cluster_id=cluster), NOW)}, topic="a.events")
    later_without_an_anchor(ready)
    found = refusal(ready)
    assert (type(found), "(offset 709 of events-0): whether it has gone back" in found.message) == (NeedsPerson, True)
    assert "delete the rows of a.events from the store" in str(found.hint)
    assert side(ready, word=Side.SOURCE) is Side.SOURCE
    assert side(ready, word=Side.DESTINATION) is Side.DESTINATION
    assert "offset 709 of events-0 was stored later, and does not count without an anchor" in ready.row().detail


def test_rows_without_anchors_that_are_hardly_later_do_not_bring_a_job_back(ready: Memory) -> None:
    """The clocks of the two sides differ, and a correction is dated by this one."""
    ready.save({0: ready.own(5)}, topic="a.events")
    ready.save({0: StoredOffset(BASE + 9, None, NOW + 9_000)})
    assert side(ready) is Side.DESTINATION


def test_a_row_that_the_mirror_translated_has_the_sources_anchor_and_shows_no_third_cluster(ready: Memory) -> None:
    ready.save({0: stored(4)})
    ready.save({0: replace(stored(4), offset=3)}, topic="a.events")
    assert side(ready) is Side.SOURCE


def test_a_job_that_went_back_in_part_needs_a_person(wide: Memory) -> None:
    for partition in range(2):
        wide.deliver(range(10), partition)
    wide.save({0: stored(4), 1: stored(5, 1)})
    wide.apply()
    wide.save({0: stored(8, written_at_ms=NOW + 2)})
    for word in (None, Side.SOURCE):
        found = refusal(wide, word=word)
        assert (type(found), found.message.startswith("Some stored offsets")) == (NeedsPerson, True)
        assert "delete that row" not in str(found.hint)


def test_a_row_of_a_partition_that_only_the_destination_has_is_named_after_a_failback(wide: Memory) -> None:
    """The source has fewer partitions: a failback writes no row there in the place of this one."""
    for partition in range(3):
        wide.deliver(range(10), partition)
    wide.save({number: wide.own(5, number) for number in range(3)}, topic="a.events")
    wide.save({number: stored(8, number, NOW + 1) for number in range(2)})
    assert "If the source has no partition for a.events-2, delete that row" in str(refusal(wide).hint)


def test_with_one_name_on_both_sides_the_destinations_id_tells(memory: Memory) -> None:
    memory.log.create("events", 1)
    memory.save({0: stored(4)})
    assert side(memory, IDENTITY) is Side.SOURCE
    memory.save({0: StoredOffset(3, anchor(4, 0, "b"), NOW)})
    assert side(memory, IDENTITY) is Side.DESTINATION


def test_rows_that_an_unfinished_failover_has_not_reached_are_older(memory: Memory) -> None:
    memory.log.create("events", 2)
    memory.save({0: stored(8, 0, NOW), 1: StoredOffset(5, anchor(4, 1, "b"), NOW + 1)})
    assert side(memory, IDENTITY) is Side.DESTINATION


def test_where_the_destination_cannot_tell_nothing_is_guessed(memory: Memory) -> None:
    memory.save({0: stored(4)})
    found = refusal(memory, IDENTITY, alone=True)
    assert (found.exit_code, "on which side" in found.message) == (ExitCode.UNREACHABLE, True)
    assert side(memory, IDENTITY, alone=True, word=Side.SOURCE) is Side.SOURCE


def test_rows_without_anchors_under_the_destinations_name_need_a_word(ready: Memory) -> None:
    ready.save({0: StoredOffset(BASE + 5)})
    ready.save({0: StoredOffset(4)}, topic="a.events")
    assert "do not tell on which side" in refusal(ready).message
    assert side(ready, word=Side.SOURCE) is Side.SOURCE
    assert side(ready, word=Side.DESTINATION) is Side.DESTINATION


def copied(tmp_path: Path, topic: str, cluster_id: str) -> Files:
    """A copy that began where the topic's log does: no record is there to be the offset's anchor."""
    files = Files(tmp_path / "copy")
    files.batch(0, {topic: {0: 0}})
    first = {TopicPartition(topic, 0): StoredOffset(0, Anchor(cluster_id=cluster_id, topic_id=f"{cluster_id}/{topic}"))}
    made = {"created_at": stamp(NOW), "destination": {"cluster_id": cluster_id}, "anchors": anchors_field(first)}
    (files.path / MANIFEST).write_text(json.dumps(made))
    return files


@pytest.mark.parametrize(
    ("cluster_id", "topic", "extra", "lives"),
    [
        ("b", "a.events", "", Side.DESTINATION),
        ("b", "events", IDENTITY, Side.DESTINATION),
        ("a", "events", "", Side.SOURCE),
        ("a", "events", IDENTITY, Side.SOURCE),
        ("rebuilt", "a.events", "", None),
    ],
)
def test_a_copy_says_itself_which_cluster_it_is_for_once_its_first_anchors_do_not_count(
    memory: Memory, tmp_path: Path, cluster_id: str, topic: str, extra: str, lives: Side | None
) -> None:
    files = copied(tmp_path, topic, cluster_id)
    job = f'[[jobs]]\nhome = "a"\nname = "q"\ntopics = ["events"]\noffsets = "checkpoint:{files.path}"\n'
    config = memory.config(extra, job)
    outside = replace(memory.outside, open_store=open_checkpoint)
    for number in range(1, 3):
        files.batch(number, {topic: {0: 4 * number}})
        if lives is None:
            with pytest.raises(NeedsPerson, match="in the numbering of rebuilt, which is another cluster"):
                choose(config, config.jobs[0], outside, word=None, mark=None)
            continue
        found = choose(config, config.jobs[0], outside, word=None, mark=None)
        assert found.side is lives
        assert found.held is None or numberings(found.held.rows.values()) == [cluster_id]


def test_a_checkpoint_that_has_a_copy_lives_at_the_destination(ready: Memory) -> None:
    assert side(ready, is_copied=True, alone=True) is Side.DESTINATION
    assert isinstance(refusal(ready, is_copied=True, word=Side.SOURCE), NeedsPerson)


# ---------------------------------------------------------------- a group that MirrorMaker keeps


class Synced(MemoryStore):
    capabilities = replace(MemoryStore.capabilities, translated_by_mirror=True)


GROUP_JOB = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "kafka-group:"\n'


def of_group(memory: Memory, word: Side | None = None) -> Chosen:
    config = memory.config(jobs=GROUP_JOB)
    return choose(config, config.jobs[0], memory.outside, word=word, mark=None)


@pytest.fixture
def group(ready: Memory, request: pytest.FixtureRequest) -> Memory:
    """The destination's rows of the job's group."""
    ready.store = Synced(f"group of {request.node.nodeid}")
    return ready


def test_a_number_that_the_mirror_has_put_into_the_group_leaves_the_job_at_the_source(group: Memory) -> None:
    group.save({0: StoredOffset(5)}, topic="a.events")
    write_checkpoints(group.log, (BASE + 5, 5), (BASE + 8, 8), group=GROUP)
    assert of_group(group).side is Side.SOURCE


@pytest.mark.parametrize("others", [60, 1000])
def test_a_number_of_the_mirrors_is_looked_for_behind_the_checkpoints_of_other_groups(
    group: Memory, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    limit_reading(monkeypatch, least=20)
    group.save({0: StoredOffset(5)}, topic="a.events")
    write_checkpoints(group.log, (BASE + 5, 5), group=GROUP)
    write_checkpoints(group.log, *[(BASE + 7, 7)] * others, group="others")
    if others < reading.MOST:
        assert of_group(group).side is Side.SOURCE
    else:
        with pytest.raises(NeedsPerson, match=r"no checkpoint of the mirror names it \(none of the newest 100 records"):
            of_group(group)


def test_the_commit_of_a_moved_job_without_anchors_is_not_taken_for_the_mirrors(group: Memory) -> None:
    """A correction has an anchor, and the next commit of the consumer, which takes its place, has none."""
    group.save({0: group.own(5)}, topic="a.events")
    write_checkpoints(group.log, (BASE + 5, 5), group=GROUP)
    write_checkpoints(group.log, (BASE + 7, 7), group="others")
    assert of_group(group).side is Side.DESTINATION
    group.save({0: StoredOffset(7)}, topic="a.events")
    with pytest.raises(NeedsPerson, match=r"offset 7 of a\.events-0 .*no checkpoint of the mirror names it: job"):
        of_group(group)
    assert of_group(group, Side.SOURCE).side is Side.SOURCE
    assert of_group(group, Side.DESTINATION).side is Side.DESTINATION


def test_where_no_checkpoint_can_be_read_a_number_without_an_anchor_needs_a_word(group: Memory) -> None:
    group.save({0: StoredOffset(7)}, topic="a.events")
    with pytest.raises(NeedsPerson, match=r'names it \(the mirror left no offsets here \(no topic "a\.checkpoints'):
        of_group(group)


def test_a_group_that_has_gone_back_is_left_behind_by_deleting_its_offsets_at_the_destination(group: Memory) -> None:
    """The rows of the source are in its own cluster: here nothing shows that they are later."""
    group.save({0: group.own(5)}, topic="a.events")
    with pytest.raises(NeedsPerson) as refused:
        of_group(group, Side.SOURCE)
    assert "delete the group's offsets at the destination" in str(refused.value.hint)
    group.store = Synced("no offset of the group")
    assert of_group(group).side is Side.SOURCE


def test_a_group_fails_back_by_the_destinations_rows_imported_under_the_sources_names(
    group: Memory, tmp_path: Path
) -> None:
    """Its old commit there is a match of long ago. The anchor of the last record here is searched for there."""
    at_a = MemoryLog("a", {"events": 1})
    for number in range(20):
        at_a.partition("events", 0).append(*content(number))
    path = tmp_path / "failback.toml"
    names = '[topics.names.a]\n"a.events@b" = "events"\n'
    path.write_text(
        f'[clusters.b]\n[clusters.a]\nbootstrap_servers = "a"\n{names}'
        + GROUP_JOB.replace('"events"', '"a.events"').replace('home = "a"', 'home = "b"')
    )
    config = load_config(path, {})
    there = replace(group, log=at_a)
    old = StoredOffset(3, replace(group.own(3).anchor, cluster_id="a", topic_id="a/events"))
    there.save({0: old}, topic="events")
    found = check(config, config.jobs, there.outside).plan.jobs[0].partitions[0]
    assert (found.verdict, found.resume_offset) == (Verdict.MATCH, 3)
    there.save({0: group.own(9)}, topic="events")
    found = check(config, config.jobs, there.outside).plan.jobs[0].partitions[0]
    assert (found.resume_offset, found.detail) == (9, "the anchor is at its own offset")


# ---------------------------------------------------------------- by a mark, and by a word


def test_a_mark_or_a_word_moves_the_job(ready: Memory) -> None:
    ready.save({0: stored(4)})
    assert side(ready, mark=MARK, alone=True) is Side.DESTINATION
    assert side(ready, word=Side.DESTINATION, alone=True) is Side.DESTINATION


def test_a_word_against_a_mark_is_refused(ready: Memory) -> None:
    found = refusal(ready, word=Side.SOURCE, mark=MARK)
    assert (found.exit_code, "which me@here started" in found.message) == (ExitCode.USAGE, True)


def test_a_mark_is_there_from_start_to_end(memory: Memory) -> None:
    marks = Marks(memory.config())
    assert marks.of("clicks") is None
    assert marks.set("clicks", MARK)
    assert not marks.set("clicks", Mark("later", "you@there"))
    assert (marks.of("clicks"), marks.of("views")) == (MARK, None)
    assert (marks.remove("clicks"), marks.remove("clicks")) == (True, False)
    assert marks.of("clicks") is None


def test_marks_stand_beside_the_configuration_wherever_a_hook_runs(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Marks(memory.config()).set("clicks", MARK)
    assert (tmp_path / "reconciler.failover" / "clicks.json").stat().st_mode & 0o444 == 0o444
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Marks(memory.config()).of("clicks") == MARK
    assert Marks(memory.config('[failover]\nstate = "shared"')).place == str(tmp_path / "shared")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"format":"reconciler.failover/2"}'])
def test_a_mark_that_cannot_be_read_is_no_guess(memory: Memory, tmp_path: Path, content: bytes) -> None:
    marks = Marks(memory.config())
    marks.set("clicks", MARK)
    (tmp_path / "reconciler.failover" / "clicks.json").write_bytes(content)
    with pytest.raises(Refused, match="it is not known on which side"):
        marks.of("clicks")


def test_a_folder_of_marks_that_cannot_be_read_is_no_guess(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "reconciler.failover").write_text("a file")
    with pytest.raises(Refused):
        Marks(memory.config()).of("clicks")


def test_a_named_folder_that_is_not_there_is_no_guess(memory: Memory, tmp_path: Path) -> None:
    """A share that is not mounted holds no mark, and says nothing."""
    marks = Marks(memory.config('[failover]\nstate = "shared"'))
    for asked in (lambda: marks.of("clicks"), lambda: marks.set("clicks", MARK), lambda: marks.remove("clicks")):
        with pytest.raises(Refused, match=f"There is no folder {tmp_path}/shared, which .* mkdir -p {tmp_path}/shared"):
            asked()
    (tmp_path / "shared").mkdir()
    assert (marks.of("clicks"), marks.set("clicks", MARK), marks.of("clicks")) == (None, True, MARK)


def test_a_mark_of_the_other_direction_is_not_removed(memory: Memory, tmp_path: Path) -> None:
    config = memory.config()
    Marks(config).set("clicks", MARK)
    back = Marks(replace(config, topics=replace(config.topics, here="b", there="a")))
    with pytest.raises(ConfigError, match='about a failover from "a"'):
        back.remove("clicks")
    assert Marks(config).of("clicks") == MARK
    (tmp_path / "reconciler.failover" / "clicks.json").write_bytes(b"{")
    back.remove("clicks")
    assert Marks(config).of("clicks") is None, "one that cannot be read can be removed"


# ---------------------------------------------------------------- the offsets of a start at the source


def at_source(
    memory: Memory,
    outside: Outside | None = None,
    *,
    config: Config | None = None,
    word: Side | None = None,
    source: bool = True,
    may_be_new: bool = False,
) -> Any:
    config = config or memory.config()
    config = replace(config, clusters={"a": config.destination if source else None, "b": config.destination})
    held = choose(config, config.jobs[0], outside or memory.outside, word=word, mark=None).held
    assert held is not None
    return offsets_at_source(config, config.jobs[0], held, may_be_new=may_be_new)


def test_the_jobs_own_offsets_are_handed_over_as_they_are(wide: Memory) -> None:
    wide.save({0: stored(4), 1: StoredOffset(-1), 2: StoredOffset(BASE + 3)})
    assert at_source(wide) == {"events": {"0": BASE + 5, "2": BASE + 3}}


def test_a_job_without_rows_starts_only_if_it_is_called_new(ready: Memory) -> None:
    with pytest.raises(NeedsPerson, match=r'no rows of "events" for group "readers".*--accept new'):
        at_source(ready)
    assert at_source(ready, may_be_new=True) == {}


def test_rows_of_the_destinations_names_alone_are_no_offsets_at_the_source(ready: Memory) -> None:
    ready.save({0: StoredOffset(4)}, topic="a.events")
    with pytest.raises(NeedsPerson, match=r"has no stored offset: the store has rows of a\.events alone"):
        at_source(ready, word=Side.SOURCE)


@pytest.mark.parametrize(("new", "starts"), [("earliest", True), ("latest", False), ("2026-01-01T00:00:00Z", False)])
def test_a_topic_without_a_row_starts_at_the_source_only_where_nothing_is_skipped(
    ready: Memory, new: str, starts: bool
) -> None:
    ready.save({0: stored(4)})
    config = ready.config(f'[policy]\nnew = "{new}"\n')
    config = replace(config, jobs=(replace(config.jobs[0], topics=("events", "orders")),))
    if not starts:
        with pytest.raises(NeedsPerson, match="has no stored offset of orders: the store has rows of events alone"):
            at_source(ready, config=config)
    assert list(at_source(ready, config=config, may_be_new=not starts)) == ["events"]


def test_without_the_sources_address_it_does_not_start_there(ready: Memory) -> None:
    ready.save({0: stored(4)})
    with pytest.raises(ConfigError, match=r"\[source\] bootstrap_servers is missing.*--to destination"):
        at_source(ready, source=False)


def test_a_store_that_lives_in_the_cluster_is_left_to_the_job(ready: Memory) -> None:
    """The destination's rows of such a store are a mirror's: they may lag, or be of other numbers."""
    ready.save({0: stored(4)})
    assert at_source(ready, config=ready.config(jobs=GROUP_JOB)) == {}


def test_rows_of_two_clusters_need_a_person(wide: Memory) -> None:
    wide.save({0: stored(4), 1: StoredOffset(BASE + 3, anchor(2, 1, "older"))})
    with pytest.raises(NeedsPerson, match="several clusters: a, older"):
        at_source(wide)


def test_a_store_that_does_not_exist_yet_holds_no_rows(memory: Memory, tmp_path: Path) -> None:
    from reconciler.stores.registry import open_store

    none = replace(memory.outside, open_store=lambda _: open_store(f"sqlite:///{tmp_path}/none.db"))
    with pytest.raises(NeedsPerson, match="There is no offset store at"):
        at_source(memory, none)
    assert at_source(memory, none, may_be_new=True) == {}
    assert not (tmp_path / "none.db").exists()
