"""Offsets that jobs keep in ZooKeeper: bare numbers. ``layouts`` draws the znodes, and ``writing`` changes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconciler.core.errors import Refused
from reconciler.places import common
from reconciler.places.numbers import Number
from reconciler.places.zookeeper import writing
from reconciler.places.zookeeper.client import ANY_VERSION, AT_ONCE, PROBE, Create, Ensemble, Operation, Set, ancestors
from reconciler.places.zookeeper.layouts import Consumers, Layout, Places, Single, check_name
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult

TIMEOUT_S = 5.0


class ZookeeperStore:
    """The offsets below ``chroot``. With ``of_group``, a caller may read a store without groups only for that group.

    Every method raises Unreachable without an answer in ``timeout_s``, and Refused where the servers refuse, where
    there is no store, and where a znode that should hold an offset holds something else.
    """

    def __init__(
        self,
        hosts: str,
        chroot: str,
        layout: str,
        *,
        credentials: str | None = None,
        of_group: str | None = None,
        number: Number = Number.NEXT,
        address: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """``layout``: ``consumers`` or ``single``. ``address`` is the address without secrets."""
        self._chroot = chroot
        self._kind = layout
        self._of_group = of_group
        self._number = number
        self.capabilities = Capabilities(keeps_anchors=False)
        self.address = address or f"zookeeper://{hosts}{chroot}?layout={layout}"
        self._ensemble = Ensemble(hosts, credentials, timeout_s=timeout_s)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, ordered by topic and partition."""
        layout = self._layout(group)
        wanted = common.wanted_topics(topics)
        for topic in wanted or ():
            check_name("topic's name", topic)
        if wanted is not None and not wanted:
            return []
        places = self._places(layout, wanted)
        keys = [TopicPartition(topic, partition or 0) for topic, partition in places.values()]
        found = writing.snapshot(self._ensemble, layout, keys, to_write=False)
        rows = [row.row(key) for key, row in found.rows.items()]
        rows += [common.unread(key, error) for key, error in found.faults.items()]
        return sorted(rows, key=lambda row: row.key)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each number, in as few transactions as their size allows. Nothing else is kept.

        Raises OutcomeUnknown without an answer, or where a part was written before an error.
        """
        common.check_changes(group, changes)
        layout = self._layout(group)
        for change in changes:
            check_name("topic's name", change.key.topic)
        return writing.write(self._ensemble, layout, changes)

    def create(self) -> None:
        """Create the store's base znode, and those above it, unless they exist."""
        base = self._layout(self._of_group or "any").base
        paths = [*ancestors(base), base]
        while (existing := self._ensemble.existing(paths)) != set(paths):
            self._ensemble.commit([Create(path) for path in paths if path not in existing])

    def check_writable(self, group: str) -> None:
        """Raise Refused if the group has live consumers of Kafka's old client, which would overwrite its offsets, or
        if one of its znodes must not be written. Writes nothing.
        """
        layout = self._layout(group)
        if isinstance(layout, Consumers):
            self._refuse_live_members(group, layout)
        places = self._places(layout, None)
        # Nothing is written, so neither their content nor their version is read: permissions are asked of names.
        operations: list[Operation] = [Set(path, b"", ANY_VERSION) for path in places]
        operations += [Create(f"{folder}/{PROBE}") for folder in self._lowest_folders(layout, places)]
        for first in range(0, len(operations), AT_ONCE):
            self._ensemble.check_permission(operations[first : first + AT_ONCE])

    def close(self) -> None:
        self._ensemble.close()

    # ------------------------------------------------------------ reading

    def _layout(self, group: str) -> Layout:
        check_name("group's name", group)
        if self._kind == "consumers":
            return Consumers(self._chroot, group, self._number)
        common.check_group(group, self._of_group, f"the store {self.address}", why=": this layout has no groups")
        return Single(self._chroot, self._number)

    def _places(self, layout: Layout, topics: Iterable[str] | None) -> Places:
        places = layout.znodes(self._ensemble, topics)
        if places is None:
            raise writing.missing(self._ensemble, layout)
        return places

    def _lowest_folders(self, layout: Layout, places: Places) -> list[str]:
        """The lowest existing znodes below which a write may have to create others."""
        topics = set() if layout.shared else {topic for topic, _ in places.values()}
        folders = [layout.folder, *(f"{layout.folder}/{topic}" for topic in topics)]
        lineages = [[folder, *reversed(ancestors(folder))] for folder in folders]
        existing = self._ensemble.existing({path for lineage in lineages for path in lineage})
        found = (next((path for path in lineage if path in existing), None) for lineage in lineages)
        return sorted({path if path != "/" else "" for path in found if path is not None})

    def _refuse_live_members(self, group: str, layout: Consumers) -> None:
        members = self._ensemble.children([layout.members])[layout.members]
        if members:
            names = ", ".join(sorted(members)[:10])
            raise Refused(
                f"Group {group!r} has {len(members)} live consumer{'s' if len(members) != 1 else ''} in ZooKeeper"
                f" ({names}), which would overwrite its offsets; nothing was written.",
                hint="Stop them, wait until their sessions have ended, then run this again.",
            )
