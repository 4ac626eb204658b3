"""Offsets that jobs keep in ZooKeeper, with their anchors in znodes beside them.

Two layouts, which ``layouts/zookeeper_paths.py`` draws: ``consumers``, the place of Kafka's own old consumers, where
monitoring tools look, and ``single``, one znode a topic. How offset and anchor are known to belong together stands in
``layouts/zookeeper_anchor.py``, how they are written in ``zookeeper_writing.py``.

A stored number is the next offset to read, whichever end of the last batch it is (``saves``): a job that starts reads
from there on. With ``saves=from`` it reads its last batch again at every start, and after a failover too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import overload
from urllib.parse import parse_qsl, unquote

from reconciler.config.addresses import split, without_secrets
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, Refused
from reconciler.ports import Capabilities, Change, OffsetStore, Row, TopicPartition, WriteResult
from reconciler.stores import common
from reconciler.stores.zookeeper import writing
from reconciler.stores.zookeeper.client import AT_ONCE, Create, Ensemble, Operation, Set
from reconciler.stores.zookeeper.layouts import ConsumersLayout, Layout, SingleLayout, check_name
from reconciler.stores.zookeeper.paths import ancestors, problem_of
from reconciler.stores.zookeeper.writing import Seen

TIMEOUT_S = 5.0
EXAMPLE = "zookeeper://h1:2181,h2:2181/kafka?layout=consumers"
_PROBE = "reconciler-asks-whether-it-may"
_SETTLING = 3


class ZookeeperStore:
    """The offsets below ``chroot``. ``of_group`` is the only group that a store without groups may be asked for.

    ``anchors_beside`` False: no anchor is read or written here. The znodes beside offsets then hold times alone.

    Every method raises Unreachable without an answer in ``timeout_s``, and Refused where the servers say no, where
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
        anchors_beside: bool = True,
        address: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._chroot = chroot
        self._kind = layout
        self._of_group = of_group
        self._anchors_beside = anchors_beside
        self._address = address or f"zookeeper://{hosts}{chroot}?layout={layout}"
        self._ensemble = Ensemble(hosts, credentials, timeout_s=timeout_s)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(keeps_anchors=self._anchors_beside)

    @property
    def address(self) -> str:
        return self._address

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, ordered by topic and partition."""
        layout = self._layout(group)
        wanted = common.wanted_topics(topics)
        for topic in wanted or ():
            check_name("topic's name", topic)
        if wanted is not None and not wanted:
            return []
        seen = self._settled(layout, wanted)
        rows = [seen.rows[key].row(key, shared=layout.shared) for key in sorted(seen.rows)]
        return rows if self._anchors_beside else [_bare(row) for row in rows]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """Compare-and-set each change, in as few transactions as their size allows. ``reason`` is not kept.

        Raises OutcomeUnknown where an answer did not come, or a part was written before something failed.
        """
        common.check_changes(group, changes)
        layout = self._layout(group)
        for change in changes:
            check_name("topic's name", change.key.topic)
        if not self._anchors_beside:
            changes = [replace(change, new=_without_anchor(change.new)) for change in changes]
        return writing.write(self._ensemble, layout, changes, now_ms)

    def create(self) -> None:
        """Make the znode that the store lives in, and those above it, unless they are there."""
        base = self._layout(self._of_group or "any").base
        paths = [*ancestors(base), base]
        while (there := self._ensemble.existing(paths)) != set(paths):
            self._ensemble.commit([Create(path) for path in paths if path not in there])

    def check_writable(self, group: str) -> None:
        """Raise Refused if the group has live consumers of Kafka's old client, which would overwrite what is written,
        or if one of its znodes may not be written. Writes nothing.
        """
        layout = self._layout(group)
        self._refuse_live(group, layout)
        seen = self._settled(layout, None)
        operations: list[Operation] = []
        for path, node in seen.nodes.items():
            if node is not None:
                operations.append(Set(path, node.data, node.version))
        operations += [Create(f"{folder}/{_PROBE}") for folder in self._folders(layout, seen)]
        for first in range(0, len(operations), AT_ONCE):
            self._ensemble.permission_to(operations[first : first + AT_ONCE])

    def close(self) -> None:
        self._ensemble.close()

    # ------------------------------------------------------------ looking

    def _layout(self, group: str) -> Layout:
        check_name("group's name", group)
        if self._kind == "consumers":
            return ConsumersLayout(self._chroot, group)
        if self._of_group not in (None, group):
            raise ConfigError(
                f"The offsets at {without_secrets(self._address)} are those of group {self._of_group!r}, and group"
                f" {group!r} is asked for: this layout has no groups.",
                hint="Correct the job's group, or of_group in the store's address.",
            )
        return SingleLayout(self._chroot)

    def _settled(self, layout: Layout, wanted: Iterable[str] | None) -> Seen:
        """All rows of some topics, read again where a pair may have been changed between its two halves."""
        seen = self._seen(layout, wanted)
        for _ in range(_SETTLING):
            if not any(found.pair(shared=layout.shared).lag is not None for found in seen.rows.values()):
                break
            before, seen = seen, self._seen(layout, wanted)
            if before.nodes == seen.nodes:
                break
        return seen

    def _seen(self, layout: Layout, wanted: Iterable[str] | None) -> Seen:
        places = layout.znodes(self._ensemble, wanted)
        if places is None:
            raise writing.missing(self._ensemble, layout)
        keys = [TopicPartition(topic, partition or 0) for topic, partition in places.values()]
        return writing.look(self._ensemble, layout, keys)

    def _folders(self, layout: Layout, seen: Seen) -> list[str]:
        """The lowest znodes that are there, below which a write may have to make others."""
        topics = {key.topic for key in seen.rows}
        places = [*layout.folders, *(f"{folder}/{topic}" for folder in layout.folders for topic in topics)]
        if layout.shared:
            places = [*layout.folders, *(f"{layout.folders[1]}/{topic}" for topic in topics)]
        lineages = [[place, *reversed(ancestors(place))] for place in places]
        there = self._ensemble.existing({path for lineage in lineages for path in lineage})
        found = (next((path for path in lineage if path in there), None) for lineage in lineages)
        return sorted({path if path != "/" else "" for path in found if path is not None})

    def _refuse_live(self, group: str, layout: Layout) -> None:
        if not isinstance(layout, ConsumersLayout):
            return
        members = self._ensemble.children([layout.members])[layout.members]
        if members:
            shown = ", ".join(sorted(members)[:10])
            raise Refused(
                f"Group {group!r} has {len(members)} live consumer{'s' if len(members) != 1 else ''} in ZooKeeper"
                f" ({shown}), which would overwrite its offsets; nothing was written.",
                hint="Stop them, wait until their sessions have ended, then run this again.",
            )


def _bare(row: Row) -> Row:
    return replace(row, stored=_without_anchor(row.stored), anchor_lag=None, note="")


@overload
def _without_anchor(stored: StoredOffset) -> StoredOffset: ...
@overload
def _without_anchor(stored: StoredOffset | None) -> StoredOffset | None: ...
def _without_anchor(stored: StoredOffset | None) -> StoredOffset | None:
    return None if stored is None else replace(stored, anchor=None)


# ---------------------------------------------------------------- addresses


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``zookeeper://[USER:PASSWORD@]HOSTS[/CHROOT]?layout=consumers|single`` and, if need be, ``&saves=until|from``,
    ``&anchors=beside|apart``, ``&timeout=SECONDS`` and, with ``single``, ``&of_group=GROUP``.
    """
    parts = split(address)
    try:
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _wrong("it cannot be taken apart") from None
    if parts.fragment:
        raise _wrong("it has a # in it, which must be written as %23")
    settings = _settings(query)
    hosts = parts.hosts
    if not hosts.strip(",") or any(not host or host.startswith(":") for host in hosts.split(",")):
        raise _wrong("it names no host")
    layout = settings["layout"]
    of_group = settings.get("of_group")
    if of_group is not None and layout != "single":
        raise _wrong("of_group goes with layout=single only: the other layout has groups")
    return ZookeeperStore(
        _checked_hosts(hosts),
        _chroot(parts.path),
        layout,
        credentials=_credentials(parts.user),
        of_group=of_group,
        anchors_beside=settings.get("anchors") != "apart",
        address=without_secrets(address),
        timeout_s=_seconds(settings.get("timeout", f"{TIMEOUT_S:g}")),
    )


_CHOICES: Mapping[str, tuple[str, ...] | None] = {
    "layout": ("consumers", "single"),
    "saves": ("until", "from"),
    "anchors": ("beside", "apart"),
    "of_group": None,
    "timeout": None,
}


def _settings(query: Sequence[tuple[str, str]]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for name, value in query:
        if name not in _CHOICES:
            raise _wrong(f"{name!a} is not one of its parameters ({', '.join(_CHOICES)})")
        if name in settings:
            raise _wrong(f"{name} is given twice")
        choices = _CHOICES[name]
        if choices is not None and value not in choices:
            raise _wrong(f"{name}={value!a} is not one of {', '.join(choices)}")
        settings[name] = value
    if "layout" not in settings:
        raise _wrong("it does not say which layout: consumers or single")
    if "of_group" in settings:
        check_name("group in of_group", settings["of_group"])
    return settings


def _seconds(text: str) -> float:
    seconds = common.timeout_s(text)
    if seconds is None:
        raise _wrong(f"timeout={text!a} is not a time in seconds, above 0 and up to 600")
    return seconds


def _checked_hosts(hosts: str) -> str:
    from kazoo.hosts import collect_hosts

    try:
        collect_hosts(hosts)
    except ValueError:
        raise _wrong("its hosts are not HOST:PORT,HOST:PORT") from None
    return hosts


def _credentials(user_part: str) -> str | None:
    if not user_part:
        return None
    user, colon, password = user_part.partition(":")
    if not user or not colon:
        raise _wrong("its credentials are not USER:PASSWORD")
    return f"{unquote(user)}:{unquote(password)}"


def _chroot(path: str) -> str:
    names = [unquote(name) for name in path.strip("/").split("/")] if path.strip("/") else []
    for name in names:
        if problem := problem_of(name):
            raise _wrong(f"the znode {name!a} in its path {problem}")
    return "".join(f"/{name}" for name in names)


def _wrong(why: str) -> ConfigError:
    # The address is not repeated: it may hold a password, and could not be taken apart.
    return ConfigError(f"A store's address zookeeper:… is wrong: {why}.", hint=f"Write it like {EXAMPLE}.")
