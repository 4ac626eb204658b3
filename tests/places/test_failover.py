"""A failover there and back between real clusters, for a job in each kind of place: a row of ``PLACES`` each.

A plain client writes the job's offsets, and reads the place back: nothing but the corrected rows may have changed.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

import pytest

from reconciler.places.registry import open_store
from tests.places.bare_jobs import LATER, PATIENT, POLICIES, BareJob, fail_over, go_back
from tests.places.postgresql.fixtures import GROUPED, MAPPED
from tests.sizes import sampled
from tests.world import World

pytestmark = pytest.mark.system
Content = dict[Any, Any]


class Place:
    """A job's place. ``rows`` is what offsets look like in it, by a name for each row."""

    keeps_older = False
    """A correction adds a row; the one before it stays."""

    def __init__(self, address: str, group: str) -> None:
        self.address, self.group = address, group

    def save(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Write offsets as the job does."""
        raise NotImplementedError

    def look(self) -> Content:
        """All rows."""
        raise NotImplementedError

    def rows(self, topic: str, offsets: Mapping[int, int]) -> Content:
        raise NotImplementedError


class Own(Place):
    """A layout of this product's own, in which every row has its anchor."""

    def __init__(self, address: str, group: str) -> None:
        super().__init__(address, group)
        with closing(open_store(address)) as store:
            store.create()

    def look(self) -> Content:
        with closing(open_store(self.address)) as store:
            rows = store.read(self.group)
        assert all(row.stored.anchor and row.stored.anchor.offset == row.stored.offset - 1 for row in rows)
        return {row.key: row.stored.offset for row in rows}

    def rows(self, topic: str, offsets: Mapping[int, int]) -> Content:
        return {(topic, part): offset for part, offset in offsets.items()}


class Znodes(Place):
    def __init__(self, address: str, group: str, kazoo: Any, chroot: str, *, single: bool) -> None:
        super().__init__(address, group)
        self._kazoo, self._single = kazoo, single
        self._folder = chroot if single else f"{chroot}/consumers/{group}/offsets"

    def save(self, topic: str, offsets: Mapping[int, int]) -> None:
        for path, data in self.rows(topic, offsets).items():
            self._kazoo.ensure_path(path)
            self._kazoo.set(path, data)

    def look(self) -> Content:
        topics = [f"{self._folder}/{topic}" for topic in self._kazoo.get_children(self._folder)]
        below = [f"{path}/{part}" for path in topics for part in self._kazoo.get_children(path)]
        found = {path: self._kazoo.get(path)[0] for path in (topics if self._single else below)}
        return {path: data for path, data in found.items() if data}

    def rows(self, topic: str, offsets: Mapping[int, int]) -> Content:
        if self._single:
            return {f"{self._folder}/{topic}": ",".join(f"{part}:{at}" for part, at in offsets.items()).encode()}
        return {f"{self._folder}/{topic}/{part}": b"%d" % at for part, at in offsets.items()}


class Table(Place):
    """A table of the job's, with columns that this product does not know; one with groups has another group's rows."""

    def __init__(self, address: str, group: str, psql: Any, *, grouped: bool) -> None:
        super().__init__(address, group)
        self.psql, self._name, self._grouped = psql, "job_offsets" if grouped else "txn_offsets", grouped
        key = "grp, topic, part" if grouped else "topic, part"
        columns = f"grp text, topic text, part int, off bigint, owner text DEFAULT 'nobody', UNIQUE ({key})"
        psql.execute(f"CREATE TABLE {self._name} ({columns})")
        if grouped:
            psql.execute(f"INSERT INTO {self._name} VALUES ('another', 'events', 0, 7, 'somebody')")

    def save(self, topic: str, offsets: Mapping[int, int]) -> None:
        for part, at in offsets.items():
            values = {"grp": self.group, "topic": topic, "part": part, "off": at}
            self.psql.execute(
                f"INSERT INTO {self._name} VALUES (%(grp)s, %(topic)s, %(part)s, %(off)s, 'job') "
                f"ON CONFLICT ({'grp, ' if self._grouped else ''}topic, part) DO UPDATE SET off = %(off)s",
                values,
            )

    def look(self) -> Content:
        rows = self.psql.execute(f"SELECT topic, part, off, owner FROM {self._name}").fetchall()
        found = {(topic, part): at for topic, part, at, _ in rows}
        assert found.pop(("events", 0), 7) == 7
        assert len(found) + self._grouped == len(rows)
        assert {owner for *_, owner in rows} <= {"job", "nobody", "somebody"}, "other columns are as they were"
        return found

    def rows(self, topic: str, offsets: Mapping[int, int]) -> Content:
        return {(topic, part): at for part, at in offsets.items()}


class MysqlTable(Table):
    """A table in MariaDB. ``run`` runs a statement."""

    def __init__(self, address: str, group: str, run: Callable[..., Any]) -> None:
        Place.__init__(self, address, group)
        self._run = run
        run("CREATE TABLE txn_offsets (topic varchar(249), part int, off bigint, owner text, UNIQUE (topic, part))")

    def save(self, topic: str, offsets: Mapping[int, int]) -> None:
        for part, at in offsets.items():
            self._run("REPLACE INTO txn_offsets VALUES (%s, %s, %s, 'job')", topic, part, at)

    def look(self) -> Content:
        return {(topic, part): at for topic, part, at in self._run("SELECT topic, part, off FROM txn_offsets")}


class Cloudera(Place):
    """A row for every batch, with its time in the key. ``look`` names a row that the product wrote without its time."""

    keeps_older = True

    def __init__(self, address: str, group: str, table: Any) -> None:
        super().__init__(address, group)
        self._table, self._saved = table, set[bytes]()

    def save(self, topic: str, offsets: Mapping[int, int]) -> None:
        key = b"%b:%d" % (self._name(topic), time.time_ns() // 1_000_000)
        self._table.put(key, self._cells(offsets))
        self._saved.add(key)

    def look(self) -> Content:
        found = {key: dict(cells) for key, cells in self._table.scan()}
        return {key if key in self._saved else key.rpartition(b":")[0]: cells for key, cells in found.items()}

    def rows(self, topic: str, offsets: Mapping[int, int]) -> Content:
        return {self._name(topic): self._cells(offsets)}

    def _name(self, topic: str) -> bytes:
        return f"{topic}:{self.group}".encode()

    @staticmethod
    def _cells(offsets: Mapping[int, int]) -> dict[bytes, bytes]:
        return {b"offsets:%d" % part: b"%d" % at for part, at in offsets.items()}


class Metrics(Place):
    """The rows of CDAP's metrics processor."""

    def __init__(self, address: str, group: str, table: Any) -> None:
        super().__init__(address, group)
        self._table = table

    def save(self, topic: str, offsets: Mapping[int, int]) -> None:
        for key, cells in self.rows(topic, offsets).items():
            self._table.put(key, cells)

    def look(self) -> Content:
        return {key: dict(cells) for key, cells in self._table.scan()}

    def rows(self, topic: str, offsets: Mapping[int, int]) -> Content:
        return {f"{topic}.{part:02d}".encode(): {b"d:o": struct.pack(">q", at)} for part, at in offsets.items()}


# ---------------------------------------------------------------- the rows: a name, and how the place is made


def znodes(get: Callable[[str], Any], group: str, *, single: bool) -> Place:
    server, chroot = get("zookeeper"), get("chroot")
    address = f"zookeeper://{server.hosts}{chroot}?layout={'single' if single else 'consumers'}&{PATIENT}"
    return Znodes(address, group, get("kazoo"), chroot, single=single)


def table(get: Callable[[str], Any], group: str, *, grouped: bool) -> Place:
    address = f"{get('database')}&{GROUPED if grouped else MAPPED}&{PATIENT}"
    return Table(address, group, get("psql"), grouped=grouped)


def hbase(get: Callable[[str], Any], group: str, layout: str, family: str = "") -> Place:
    name = f"job_{quote(group, safe='').replace('-', '_')[-40:]}"
    address = f"hbase://{get('hbase').address}/{name}?layout={layout}&{PATIENT}"
    get("happy").create_table(name, {family: {}})
    plain = get("happy").table(name)
    return Cloudera(address, group, plain) if layout == "cloudera" else Metrics(address, group, plain)


PLACES: Mapping[str, Callable[[Callable[[str], Any], str], Place]] = {
    "sqlite": lambda get, group: Own(f"sqlite:///{get('tmp_path')}/offsets.db", group),
    "files": lambda get, group: Own(f"files:{get('tmp_path')}/offsets", group),
    "postgresql own": lambda get, group: Own(f"{get('database')}&{PATIENT}", group),
    "postgresql table": lambda get, group: table(get, group, grouped=False),
    "postgresql table of groups": lambda get, group: table(get, group, grouped=True),
    "mysql table": lambda get, group: MysqlTable(f"{get('results')}?{MAPPED}&{PATIENT}", group, get("sql")),
    "zookeeper consumers": lambda get, group: znodes(get, group, single=False),
    "zookeeper single": lambda get, group: znodes(get, group, single=True),
    "hbase cloudera": lambda get, group: hbase(get, group, "cloudera", "offsets"),
    "hbase metrics": lambda get, group: hbase(get, group, "cdap-metrics", "d"),
}
USUAL = {"files", "postgresql table", "zookeeper consumers", "hbase cloudera"}
"""These run in every run: others share their code, or most of it."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", sampled(PLACES, 0, always=USUAL.__contains__))
def test_a_job_fails_over_exactly_and_comes_back(
    world: World, clusters: Any, request: pytest.FixtureRequest, kind: str, policy: str
) -> None:
    place = PLACES[kind](request.getfixturevalue, world.group)
    world.address = place.address
    job = BareJob(world, clusters.source, policy)
    config = job.config()
    later = job.behind("b", LATER)
    one_name = job.mirrored == job.topic

    if isinstance(place, Own):
        job.save_anchored(config)
    else:
        place.save(job.topic, job.stored)
        job.track(config)
    kept = place.look() if place.keeps_older or not one_name else {}
    fail_over(job, config, place.look, kept | place.rows(job.mirrored, job.right))

    if isinstance(place, Own):
        job.save_anchored(config, "b", later)
    elif one_name:
        return  # a bare number may be the other cluster's: the job's own driver records it (tests/spark/job)
    else:
        place.save(job.mirrored, later)
        job.track(config)
    kept = {} if one_name else place.look()
    go_back(job, config, place.look, kept | place.rows(job.topic, job.behind("a", LATER)))
