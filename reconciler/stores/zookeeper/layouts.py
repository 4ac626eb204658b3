"""The two layouts of offsets in ZooKeeper as the store sees them: which znodes, and what an edit makes of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from reconciler.core.errors import ConfigError, Refused
from reconciler.formats import decimal_text
from reconciler.formats.decimal_text import NotDecimal
from reconciler.ports import Change
from reconciler.stores import common
from reconciler.stores.zookeeper import single_text
from reconciler.stores.zookeeper.client import Ensemble
from reconciler.stores.zookeeper.paths import ANCHORS, Consumers, Single, problem_of
from reconciler.stores.zookeeper.single_text import Entry, NotAListing

Edit: TypeAlias = int | str | None
"""What becomes of one offset: a number, a text to put back as it was, or nothing."""


class Layout(Protocol):
    """One group's znodes. ``shared``: one znode holds all offsets of a topic."""

    shared: bool

    @property
    def base(self) -> str:
        """The znode without which there is no store."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Where topics' znodes are made: of offsets, and of anchors."""

    def offset(self, topic: str, partition: int) -> str: ...

    def anchor(self, topic: str, partition: int) -> str: ...

    def znodes(self, ensemble: Ensemble, topics: Iterable[str] | None) -> dict[str, tuple[str, int | None]] | None:
        """The znodes that may hold offsets, by path: their topic, and their partition if they have one.

        None where ``base`` is missing.
        """

    def entries(self, data: bytes, partition: int | None) -> dict[int, Entry]:
        """The offsets in a znode by partition. Raises ValueError with the end of a sentence about it."""

    def edited(self, data: bytes | None, partition: int | None, edits: Mapping[int, Edit]) -> bytes | None:
        """What a znode's bytes become, None for no znode. What is the same number stays as it is."""


class ConsumersLayout(Consumers):
    """A znode a partition."""

    shared = False

    @property
    def folders(self) -> tuple[str, ...]:
        return self.offsets, self.anchors

    def znodes(self, ensemble: Ensemble, topics: Iterable[str] | None) -> dict[str, tuple[str, int | None]] | None:
        if topics is None:
            names = ensemble.children([self.offsets])[self.offsets]
            topics = names or []
            if names is None and not ensemble.existing([self.base]):
                return None
        folders = {f"{self.offsets}/{topic}": topic for topic in topics}
        found = ensemble.children(folders)
        if not any(found.values()) and not ensemble.existing([self.base]):
            return None
        return {
            f"{folder}/{name}": (topic, partition)
            for folder, topic in folders.items()
            for name in found[folder] or ()
            if (partition := decimal_text.partition_of(name)) is not None
        }

    def entries(self, data: bytes, partition: int | None) -> dict[int, Entry]:
        assert partition is not None
        return {partition: Entry(partition, decimal_text.offset_of(data), data.decode("ascii"))}

    def edited(self, data: bytes | None, partition: int | None, edits: Mapping[int, Edit]) -> bytes | None:
        ((_, edit),) = edits.items()
        if edit is None:
            return None
        if isinstance(edit, str):
            return edit.encode("ascii")
        if data is not None and decimal_text.offset_of(data) == edit:
            return data
        return b"%d" % edit


class SingleLayout(Single):
    """A znode a topic, and no groups."""

    shared = True

    @property
    def folders(self) -> tuple[str, ...]:
        return self.base, self.anchors

    def znodes(self, ensemble: Ensemble, topics: Iterable[str] | None) -> dict[str, tuple[str, int | None]] | None:
        names = ensemble.children([self.base])[self.base]
        if names is None:
            return None
        if topics is not None:
            wanted = set(topics)
            return {self.offset(topic, 0): (topic, None) for topic in names if topic in wanted}
        # Whatever else is there may be another program's.
        paths = {self.offset(name, 0): name for name in names if name != ANCHORS}
        found = ensemble.get(paths)
        return {path: (name, None) for path, name in paths.items() if self._is_listing(found[path])}

    @staticmethod
    def _is_listing(node: object) -> bool:
        try:
            return bool(single_text.parse(getattr(node, "data", b"")).entries)
        except NotAListing:
            return False

    def entries(self, data: bytes, partition: int | None) -> dict[int, Entry]:
        return {entry.partition: entry for entry in single_text.parse(data).entries}

    def edited(self, data: bytes | None, partition: int | None, edits: Mapping[int, Edit]) -> bytes | None:
        listing = single_text.parse(data or b"")
        for number in sorted(edits):
            edit, there = edits[number], listing.entry(number)
            if edit is None:
                listing = listing.without(number)
            elif isinstance(edit, str):
                listing = listing.with_entry(single_text.parse_entry(edit))
            elif there is None or there.offset != edit:
                listing = listing.with_offset(number, edit)
        return listing.text.encode("ascii") if listing.entries else None


def edit_of(layout: Layout, change: Change) -> Edit:
    """What a change makes of its offset. A text that says another number is not put back."""
    if change.new is None:
        return None
    text = change.text
    if text is None:
        return change.new.offset
    try:
        (entry,) = layout.entries(text.encode("ascii"), None if layout.shared else change.key.partition).values()
    except ValueError:
        return change.new.offset
    return text if (entry.partition, entry.offset) == (change.key.partition, change.new.offset) else change.new.offset


def check_name(what: str, name: str) -> None:
    """Raise ConfigError for a name that no znode can have. It is not spelled in another way: nobody would find it."""
    common.check_name(what, name)
    problem = "is the name of this product's own znode" if name == ANCHORS else problem_of(name)
    if problem:
        raise ConfigError(
            f"The {what} {name!a} {problem}.", hint="Such a name cannot be kept in ZooKeeper: use another store."
        )


def damaged(ensemble: Ensemble, path: str, err: ValueError) -> Refused:
    """What to say of a znode that should hold offsets and does not."""
    form = "PARTITION:OFFSET,…" if isinstance(err, NotAListing) else "an offset in decimal"
    assert isinstance(err, NotDecimal | NotAListing)
    return Refused(
        f"The znode {path} of {ensemble.name} should hold {form}, and {err}.",
        hint=f"See what wrote it, then correct it (zkCli.sh: set '{path}' TEXT) or delete it.",
    )
