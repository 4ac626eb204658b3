"""Which files below a checkpoint's folder its copy needs.

Spark's own files are those of ``OWN``. Connectors and people put others beside them: a schema log that the query needs,
a sink's rows, notes, another query's checkpoint. These are copied as they are found, and may change meanwhile. State
that no restart reads is not copied.

Spark keeps a hundred versions of its state (``spark.sql.streaming.minBatchesToRetain``). The batch N that a restart
runs reads version N: the newest snapshot at or before N, and every change after it. Source: Spark 4.2.0
(``HDFSBackedStateStoreProvider``, ``RocksDB``, ``RocksDBFileManager``, ``AutoSnapshotLoader``). In each folder of a
store:

==============================  ======================================================================
``7.delta``, ``7.changelog``    what changed in version 7
``7.snapshot``, ``7.zip``       version 7 whole; of RocksDB, the list of its files in ``SSTs`` and ``logs``
``7_ID.changelog``, ``7_ID.zip``  the same, of one of several attempts at version 7 (commit log v2)
``SSTs/…``, ``logs/…``          RocksDB's own files, shared by versions
==============================  ======================================================================

The rule, which leaves out too little rather than too much:

- Two snapshots are kept: where the newest is damaged, Spark goes back to the one before (4.1 and later).
- Only the commits say which of several attempts at one version counts: such a version is never used as a snapshot.
- A store without version N, or with a version missing before it, is kept whole, and so is every file that has none of
  these names.
- A snapshot newer than N is of the batch that is repeated. The copy repeats it with fewer records if its end is not
  proven; Spark then writes the batch's changes again, not always its snapshot, and reads a snapshot before changes. So
  it is left out where version N can be read, and the same version has changes. The changes stay: a sink that has the
  batch (Spark's file sink, Delta) does not run it again, and the next batch reads them.
- RocksDB's own files are all kept: which of them a version needs is in its packed list.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

OWN = frozenset({"metadata", "offsets", "commits", "sources", "state"})
STATE = "state/"
KEPT_SNAPSHOTS = 2
_VERSIONED = re.compile(r"(0|[1-9]\d{0,18})(?:_([0-9a-fA-F-]{36}))?\.(delta|changelog|snapshot|zip)")
_WHOLE = ("snapshot", "zip")
_CHANGES = ("delta", "changelog")


def older_state(names: Collection[str], version: int) -> frozenset[str]:
    """The files that no restart reads which begins with ``version`` of the state."""
    stores = _stores(names)
    bases = {folder: base for folder, files in stores.items() if (base := _base(list(files.values()), version)) > 0}
    left_out = {
        f"{folder}/{last}" for folder, base in bases.items() for last, of in stores[folder].items() if of[0] < base
    }
    return _withside_files(left_out, names)


def repeated_state(names: Collection[str], version: int) -> frozenset[str]:
    """The snapshots that the batch which reads ``version`` made when it ran before."""
    found = {f"{folder}/{last}" for folder, files in _stores(names).items() for last in _newer(files, version)}
    return _withside_files(found, names)


def _stores(names: Collection[str]) -> dict[str, dict[str, tuple[int, str, str]]]:
    """By folder and name: the version, the attempt's id or nothing, and the kind."""
    stores: dict[str, dict[str, tuple[int, str, str]]] = defaultdict(dict)
    for name in names:
        folder, last = posixpath.split(name)
        found = _VERSIONED.fullmatch(last) if name.startswith(STATE) else None
        if found is not None:
            stores[folder][last] = int(found[1]), found[2] or "", found[3]
    return stores


def _withside_files(left_out: Collection[str], names: Collection[str]) -> frozenset[str]:
    return frozenset({*left_out, *({side for name in left_out for side in side_files(name)} & set(names))})


def _newer(files: Mapping[str, tuple[int, str, str]], version: int) -> set[str]:
    """The snapshots after ``version`` whose changes are there, too. Attempts with ids are found by the commits."""
    numbers = {number for number, _, _ in files.values()}
    base = max((number for number, _, kind in files.values() if kind in _WHOLE and number <= version), default=0)
    if not numbers.issuperset(range(base or 1, version + 1)):
        return set()
    newer = {last: (number, kind) for last, (number, id_, kind) in files.items() if number > version and not id_}
    changed = {number for number, kind in newer.values() if kind in _CHANGES}
    return {last for last, (number, kind) in newer.items() if kind in _WHOLE and number in changed}


def _base(files: Iterable[tuple[int, str, str]], version: int) -> int:
    """The lowest version to keep; 0 keeps all."""
    attempts: dict[int, set[str]] = defaultdict(set)
    whole = set()
    for number, attempt, kind in files:
        attempts[number].add(attempt)
        if kind in _WHOLE:
            whole.add(number)
    snapshots = sorted(n for n in whole if n <= version and len(attempts[n]) == 1)
    if len(snapshots) < KEPT_SNAPSHOTS:
        return 0
    base = snapshots[-KEPT_SNAPSHOTS]
    return base if all(number in attempts for number in range(base, version + 1)) else 0


def side_files(name: str) -> tuple[str, str, str]:
    """A file's checksums: Hadoop's on local file systems, Spark's own, and Hadoop's of that one."""
    folder, last = posixpath.split(name)
    return f"{folder}/.{last}.crc", f"{name}.crc", f"{folder}/.{last}.crc.crc"


# ---------------------------------------------------------------- whose files


def is_own(name: str) -> bool:
    """True for a file that Spark wrote for the query, or for the folder of such files."""
    return name.partition("/")[0] in OWN
