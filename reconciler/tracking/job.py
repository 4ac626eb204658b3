"""One job in a round of tracking: its stored offsets, their anchors, and what is missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from reconciler.config.file import Job
from reconciler.core.anchors import StoredOffset
from reconciler.failover.unlisted import Unlisted
from reconciler.ports import Change, ClusterInfo, Row, TopicPartition
from reconciler.stores.paired import NOTHING, AnchorRows, anchor_of, aside_of, same, version_of
from reconciler.tracking.lookback import LookbackResult, TrackedOffset
from reconciler.tracking.source import Place

OWN_ROW = (
    "the [anchors] store holds a job's own offset there, which is left as it is. Give [anchors] a store of its own, or "
    "write its address as the job's"
)
IN_DOUBT = (
    "a write was interrupted, or what is kept names no cluster, and the job has gone on: its offset may be the "
    "destination's, and is not looked up. If the job runs at the destination, stop it, and check and apply there; if "
    "it never left the source, import its row without an anchor (docs/how-to/track-anchors.md#a-row-in-doubt)"
)

OF_ORIGINAL = (
    "the anchor that is kept is that of the checkpoint which this one is a copy of: the original may be planned again "
    "by it. Give the configuration of this direction an [anchors] store of its own"
)


@dataclass(frozen=True, slots=True)
class JobReport:
    """The anchors of a job's stored offsets after a round, by partition.

    ``lagging`` have an anchor that was made for an older offset, ``without`` have none, each with the reason if it is
    known; ``elsewhere`` were handed over to another cluster. ``age_ms``: the age of the oldest lagging anchor, by its
    record's timestamp. ``known`` False: the stores could not be read. ``followed``: no trouble kept missing
    anchors from being looked up and saved. ``no_rows``: a sentence, if the store has no row of any of the job's topics
    and the configuration does not call the job new. ``own``: the number of rows that have their own anchor and are not
    tracked. ``unlisted``: topics of the job's group that it does not list, and for which no anchor is kept. ``driver``:
    which run of the job's driver records its journal; of a job that has a location, the counts are of the journal.
    """

    job: str
    store: str
    exact: int = 0
    lagging: Mapping[TopicPartition, str] = field(default_factory=dict)
    without: Mapping[TopicPartition, str] = field(default_factory=dict)
    elsewhere: tuple[TopicPartition, ...] = ()
    saved: int = 0
    age_ms: int | None = None
    known: bool = True
    followed: bool = False
    no_rows: str = ""
    own: int = 0
    unlisted: Unlisted = field(default_factory=Unlisted)
    driver: str = ""

    @property
    def partitions(self) -> int:
        return self.own + self.exact + len(self.lagging) + len(self.without) + len(self.elsewhere)


@dataclass(slots=True)
class TrackedJob:
    """``aside``: these rows are the end of a running batch; their anchors are set aside until it is committed.

    ``one_name``: the topics with one name on both sides. ``certain``: whatever is kept for a row, its number is the
    source's (a group's commits there). ``of_mirror``: numbers that may be a mirror's, each with the reason.
    """

    job: Job
    rows: Mapping[TopicPartition, Row]
    kept: dict[TopicPartition, AnchorRows]
    cluster: ClusterInfo | None = None
    aside: bool = False
    one_name: Collection[str] = ()
    certain: bool = False
    of_mirror: Mapping[TopicPartition, str] = field(default_factory=dict)
    looked: dict[TopicPartition, LookbackResult] = field(default_factory=dict)
    count: int = 0

    def missing(self, now_ms: int) -> dict[TopicPartition, TrackedOffset]:
        """The stored offsets to look up. ``looked`` gets the results of those that need no look-up or may have none."""
        cluster, found = self.cluster, {}
        assert cluster is not None
        for key, row in self.rows.items():
            if row.stored.is_sentinel or self._is_elsewhere(key) or self._is_in_doubt(key):
                continue
            info = cluster.topics.get(key.topic)
            if info is None or not info.has(key.partition):
                self.looked[key] = LookbackResult(None, "the source has no such partition")
                continue
            if (why := self._why_without(key, row)) is not None:
                self.looked[key] = LookbackResult(None, why)
                continue
            own = row.stored.anchor if row.numbering is None else None  # a copy's is that of its beginning
            if own is not None and own.numbered_by(cluster.cluster_id, info.topic_id):
                self.looked[key] = LookbackResult(row.stored)
            elif not self._is_known(key, cluster.cluster_id):
                at_ms = row.stored.written_at_ms
                found[key] = TrackedOffset(
                    row.stored.offset, cluster.cluster_id, info.topic_id, info.compacted, at_ms, now_ms
                )
        return found

    def _why_without(self, key: TopicPartition, row: Row) -> str | None:
        """Why no anchor may be kept for the row; None if one may."""
        main = self._kept(key).main
        if main is not None and main.stored.anchor is None:
            return OWN_ROW
        if row.numbering is not None and not self.job.in_copy and self._is_of_another(main):
            return OF_ORIGINAL
        return self.of_mirror.get(key)

    def exact_anchors(self) -> dict[Place, StoredOffset]:
        """What is kept of numbers of this cluster: the record before each need not be looked up again."""
        cluster, found = self.cluster, dict[Place, StoredOffset]()
        if cluster is None:
            return found
        for key, row in self.rows.items():
            looked = self.looked[key].kept if key in self.looked else None
            for kept in filter(None, (looked, *(each.stored for each in self._exact(key)))):
                anchor = kept.anchor
                if anchor is not None and anchor.numbered_by(cluster.cluster_id, cluster.topic_id(key.topic)):
                    found.setdefault(Place(key, row.stored.offset), kept)
        return found

    def changes(self) -> list[Change]:
        """The anchors to save, and the removal of rows for past offsets that an interrupted write left behind."""
        changes = []
        for key, looked in self.looked.items():
            main, aside = self._kept(key).main, self._kept(key).aside
            new = looked.kept
            if new is None or (main is not None and same(main.stored, new)):
                continue
            changes.append(Change(self._place(key), version_of(main), new))
            if aside is not None:
                changes.append(Change(aside_of(key), aside.version, None))
        return changes

    def saved(self, keys: Collection[TopicPartition]) -> None:
        """Take note of the rows that were written; the removal of one that was left behind saves no anchor."""
        for key, looked in self.looked.items():
            new = looked.kept
            if new is not None and self._place(key) in keys:
                self.kept[key] = AnchorRows(Row(key, new, ""))
                self.count += 1

    def report(self, at: JobReport, now_ms: int) -> JobReport:
        exact, oldest = 0, None
        lagging: dict[TopicPartition, str] = {}
        without: dict[TopicPartition, str] = dict(at.without)
        for key, row in sorted(self.rows.items()):
            if self._is_elsewhere(key):
                continue
            if self._is_in_doubt(key):
                without[key] = IN_DOUBT
                continue
            found = anchor_of(row, self._kept(key))
            why = self.looked[key].why if key in self.looked else ""
            if found.is_exact or row.stored.is_sentinel:
                exact += 1
            elif found.anchor is None or found.anchor.is_bare:
                without[key] = why or found.why or "not looked up yet"
            else:
                lagging[key] = why
                if found.written_at_ms:
                    oldest = min(oldest or found.written_at_ms, found.written_at_ms)
        elsewhere = tuple(key for key in sorted(self.rows) if self._is_elsewhere(key))
        age_ms = None if oldest is None else max(0, now_ms - oldest)
        return replace(
            at, exact=exact, lagging=lagging, without=without, elsewhere=elsewhere, saved=self.count, age_ms=age_ms
        )

    def _place(self, key: TopicPartition) -> TopicPartition:
        """Where the row's anchor is kept."""
        return aside_of(key) if self.aside else key

    def _kept(self, key: TopicPartition) -> AnchorRows:
        return self.kept.get(key, NOTHING)

    def _is_known(self, key: TopicPartition, cluster_id: str) -> bool:
        """True if the exact anchor of this very number is kept, also if the source's topic was recreated since.

        It tells whose number that is: the record that has it in the new topic is one that the job has not read.
        """
        main, row = self._kept(key).main, self.rows[key]
        if main is None or main.stored.anchor is None or main.stored.offset != row.stored.offset:
            return False
        return main.stored.anchor.cluster_id == cluster_id

    def _is_elsewhere(self, key: TopicPartition) -> bool:
        """True if the row's number may be another cluster's: it was handed over, or is being handed over now."""
        if self.cluster is None:
            return False
        numbers = self.rows[key].numbering
        if numbers is not None:
            return numbers.cluster_id != self.cluster.cluster_id
        exact = self._exact(key)
        if exact or self._is_in_doubt(key):
            return any(map(self._is_of_another, exact))
        return self._is_of_another(self._kept(key).main)

    def _is_in_doubt(self, key: TopicPartition) -> bool:
        """True if the row's number may be either cluster's, by what an interrupted write left, or a rollback of one.

        Then no anchor may be looked up for it, nor may the row be removed that tells so.
        """
        row, main, aside = self.rows[key], self._kept(key).main, self._kept(key).aside
        if self.cluster is None or self.certain or row.numbering is not None or row.stored.is_sentinel:
            return False
        if exact := self._exact(key):
            if not self._has_no_cluster(key, exact[0]):
                return False
            anchor = exact[0].stored.anchor  # of the record before the offset: the two are in one numbering
            return exact[0] is aside or (anchor is not None and anchor.is_bare)
        if aside is not None:
            differ = self._is_of_another(aside) if main is None else main.stored.cluster_id != aside.stored.cluster_id
            if differ:
                return True
        return self._has_no_cluster(key, main)

    def _exact(self, key: TopicPartition) -> list[Row]:
        """The kept rows that were made for the stored offset."""
        offset = self.rows[key].stored.offset
        return [row for row in self._kept(key).rows if row.stored.offset == offset]

    def _is_of_another(self, row: Row | None) -> bool:
        assert self.cluster is not None
        return row is not None and row.stored.cluster_id not in (None, self.cluster.cluster_id)

    def _has_no_cluster(self, key: TopicPartition, kept: Row | None) -> bool:
        """True for an anchor in no cluster's numbers, under a name that both sides use."""
        anchor = None if kept is None else kept.stored.anchor
        return anchor is not None and anchor.cluster_id is None and key.topic in self.one_name
