"""Offsets in manifests, one file for each batch, below a folder on any file system that fsspec opens.

Theory of operation. ``PATH/GROUP/NUMBER.jsonl`` are manifests (``formats.range_manifests``); a larger number is newer.
Jobs may write them, and so does this store.

- F1  A read walks back from the newest manifest and takes each partition's first range, until a complete snapshot.
      It skips torn manifests with a warning: the work of their batch is repeated, never skipped.
- F2  A write creates the manifest after the newest existing one, whole or torn, and creates it exclusively: of two
      writers that read the same state, one gets FileExistsError, reads again, and finds the conflict. A nonce in each
      manifest tells a writer its own: the client may have repeated the request. If the file system cannot create
      exclusively (``Folder.exclusive``), a warning says so.
- F3  A manifest holds the changed ranges and, from time to time, as a snapshot, all ranges. Only manifests older than a
      complete snapshot are ever removed, and the newest of those stay. So a process that is killed between any two
      steps leaves a state that reads the same.
- F4  A delayed writer may create a manifest whose number others have used and removed meanwhile: it is older than a
      snapshot and has no effect. So a writer checks afterwards whether its manifest counts.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from time import monotonic
from urllib.parse import quote

from reconciler.core.errors import ConfigError, NotCreated, NotNow, OutcomeUnknown, Refused, Unreachable
from reconciler.core.json_fields import FieldError
from reconciler.places import common, range_manifests
from reconciler.places.folder import Folder, open_folder
from reconciler.places.parameters import Parameters, wrong_address
from reconciler.places.range_manifests import Manifest, ManifestRange, TornManifest
from reconciler.ports import Capabilities, Change, Malformed, OffsetStore, Row, TopicPartition, WriteResult

KEEP = 20
WALK = 1000
SNAPSHOT_EVERY = 10
"""The most manifests that a read needs if only this store writes."""
CONTENDED_S = 30.0

# Not a name below reconciler.places: the command line silences those, because client libraries log there.
notes = logging.getLogger("reconciler.notes.files")


@dataclass(frozen=True, slots=True)
class _Place:
    """A partition's range, the version of the manifest that first held it, and the newest torn manifest above it."""

    range: ManifestRange
    version: str
    below_torn: str = ""


@dataclass(slots=True)
class _State:
    """A group's rows, and the manifests that were read for them."""

    highest: int = 0
    walked: int = 0
    snapshot: int | None = None
    torn: str = ""
    places: dict[TopicPartition, _Place] = field(default_factory=dict)

    def take(self, number: int, manifest: Manifest) -> None:
        for each in manifest.ranges:
            key = each.key
            version = each.origin or range_manifests.version_of(number, manifest.digest)
            self.places.setdefault(key, _Place(each, version, self.torn))
        if manifest.snapshot:
            self.snapshot = number

    def rows(self, group: str, folder: str) -> list[Row]:
        """The group's rows; ``folder`` is named by malformed ones."""
        rows = []
        for key, place in sorted(self.places.items()):
            stored, version = place.range.stored, f"{place.version} {key.topic}:{key.partition}"
            if isinstance(stored, Malformed):
                name = range_manifests.name_of(int(place.version.partition(".")[0]))
                where = f"the manifest {folder}/{folder_of(group)}/{name}"
                rows.append(common.malformed_row(key, stored.message, group=group, place=where, version=version))
            elif stored is not None:
                stay = place.range.stay
                rows.append(Row(key, stored, version, note=_note(place), of_stay=stay))
        return rows


class FilesStore:
    """A store below a folder. ``keep``: obsolete manifests that stay. ``walk``: the most manifests to read.

    Every method raises what ``Folder`` raises, and Refused for a complete manifest that is not understood.
    """

    capabilities = Capabilities(atomic_batches=True)

    def __init__(self, folder: Folder, *, address: str, keep: int = KEEP, walk: int = WALK) -> None:
        self.address = address
        self._folder = folder
        self._keep = keep
        self._walk = walk
        self._warned: set[str] = set()
        self._parsed: dict[str, tuple[bytes, Manifest]] = {}
        """The manifests of the last reading, by name. Each is read again; parsing costs far more than comparing."""

    # ------------------------------------------------------------ reading

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, ordered by topic and partition. Raises Refused if the folder does not exist."""
        common.check_name("group's name", group)
        self._refuse_missing()
        return common.rows_of_topics(self._state(group).rows(group, self._folder.shown), topics)

    def _state(self, group: str) -> _State:
        began = monotonic()
        while True:
            try:
                return self._walk_back(group)
            except FileNotFoundError as err:  # removed since it was listed: there is a newer snapshot
                if monotonic() - began > CONTENDED_S:
                    raise NotNow(
                        f"Manifests of group {group!r} in {self._folder.shown} vanish while they are read.",
                        hint="Find out what removes them, then run this again.",
                    ) from err

    def _walk_back(self, group: str) -> _State:
        below = folder_of(group)
        numbers = self._numbers(below)
        state = _State(highest=numbers[0] if numbers else 0)
        before, self._parsed = self._parsed, {}
        for number in numbers:
            if state.walked == self._walk:
                raise Refused(
                    f"Group {group!r} in {self._folder.shown} has more than {self._walk} manifests since its last"
                    " snapshot, and the older ones may hold partitions that the newer ones do not.",
                    hint=f"Add ?walk={10 * self._walk} to the store's address; the next write makes a snapshot.",
                )
            state.walked += 1
            name = range_manifests.name_of(number)
            manifest = self._load(group, f"{below}/{name}", before)
            if manifest is None:
                state.torn = state.torn or name
                continue
            state.take(number, manifest)
            if manifest.snapshot:
                break
        return state

    def _numbers(self, below: str) -> list[int]:
        """The numbers of the group's manifests, newest first."""
        found = []
        for name in self._folder.names(below):
            number = range_manifests.number_of(name)
            if number is not None:
                found.append(number)
            elif name.endswith(".jsonl"):
                self._warn(f"{below}/{name}", "its name is not twenty digits and .jsonl")
        return sorted(found, reverse=True)

    def _load(self, group: str, name: str, before: Mapping[str, tuple[bytes, Manifest]]) -> Manifest | None:
        """The manifest, None for a torn one. ``before``: what was parsed in the reading before this one."""
        data, known = self._folder.read(name), before.get(name)
        try:
            manifest = known[1] if known is not None and known[0] == data else range_manifests.load(data)
        except TornManifest as err:
            self._warn(name, f"it is torn: {err}")
            return None
        except FieldError as err:
            raise Refused(
                f"The manifest {self._folder.shown}/{name} is complete, and is not understood: {err}.",
                hint="Find out what wrote it. Move it away to use the manifests before it.",
            ) from err
        if manifest.group != group:
            raise Refused(
                f"The manifest {self._folder.shown}/{name} is of group {manifest.group!r}, in the folder of {group!r}.",
                hint="Move it to the folder of its group.",
            )
        self._parsed[name] = data, manifest
        return manifest

    def _warn(self, name: str, why: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            notes.warning("the manifest %s/%s is ignored: %s", self._folder.shown, name, why)

    # ------------------------------------------------------------ writing

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """All changes in one new manifest, or none of them if any row is no longer at its expected version.

        Raises OutcomeUnknown if the file system did not answer, and if others wrote so much meanwhile that it is not
        known whether this batch came before or after theirs.
        """
        common.check_changes(group, changes)
        if not changes:
            return WriteResult()
        self._refuse_missing()
        if not self._folder.exclusive:
            self._warn("*", "not ignored, but two writers at the same moment are not kept apart on this file system")
        began = monotonic()
        while True:
            state = self._state(group)
            versions = {row.key: row.version for row in state.rows(group, self._folder.shown)}
            conflicts = common.conflicts(changes, versions)
            if conflicts:
                return WriteResult(conflicts=conflicts)
            try:
                self._publish(group, state, changes, reason, now_ms)
            except FileExistsError:
                if monotonic() - began > CONTENDED_S:
                    raise Unreachable(
                        f"Other writers of group {group!r} in {self._folder.shown} kept this one from writing for"
                        f" {CONTENDED_S:g} s; nothing was written.",
                        hint="Stop the other writers of this group's offsets, then run this again.",
                    ) from None
                continue
            return common.result_of(changes)

    def _publish(self, group: str, state: _State, changes: Sequence[Change], reason: str, now_ms: int) -> None:
        """Create the next manifest. Raises FileExistsError if another writer did.

        Once it is created, raises OutcomeUnknown for all that goes wrong.
        """
        if state.highest == range_manifests.LAST_NUMBER:
            raise Refused(
                f"The newest manifest of group {group!r} in {self._folder.shown} has the largest number that there is, "
                f"{state.highest}; nothing was written.",
                hint="Give it the number of its batch, or its time in milliseconds.",
            )
        new = {change.key: _range(change, now_ms) for change in changes}
        snapshot = state.snapshot is None or state.walked >= SNAPSHOT_EVERY
        if snapshot:
            kept = {
                key: replace(place.range, origin=place.version)
                for key, place in state.places.items()
                if place.range.stored is not None
            }
            new = {key: each for key, each in {**kept, **new}.items() if each.stored is not None}
        data = range_manifests.dump(
            group, new.values(), written_at_ms=now_ms, snapshot=snapshot, reason=reason, nonce=secrets.token_hex(8)
        )
        number, below = state.highest + 1, folder_of(group)
        name = f"{below}/{range_manifests.name_of(number)}"
        try:
            self._folder.publish(name, data)
        except FileExistsError:
            if not self._is_mine(group, name, data):
                raise
        version = range_manifests.version_of(number, range_manifests.digest_of(data))
        try:
            self._check_it_counts(group, number, version, changes)
        except Unreachable as error:
            raise self._not_known(group, f"{name} was written, then: {error.message}") from error
        with suppress(Refused, Unreachable, OutcomeUnknown):  # obsolete manifests do no harm
            self._compact(below, number if snapshot else state.snapshot)

    def _is_mine(self, group: str, name: str, data: bytes) -> bool:
        """True if the file that is there already is this writer's: a client repeats a request whose answer got lost.

        Raises OutcomeUnknown if it cannot be read.
        """
        try:
            return self._folder.read(name) == data
        except FileNotFoundError:
            return False
        except Unreachable as error:
            raise self._not_known(
                group, f"{name} exists, and whose it is could not be read: {error.message}"
            ) from error

    def _not_known(self, group: str, what: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"Whether the offsets of group {group!r} in {self._folder.shown} were written is not known: {what}",
            hint="Run this again: it reads what is there and writes only what is missing.",
        )

    def _check_it_counts(self, group: str, number: int, version: str, changes: Sequence[Change]) -> None:
        """F4. Raises OutcomeUnknown unless the manifest just created is the newest, or its ranges count."""
        if max(self._numbers(folder_of(group)), default=number) == number:
            return
        places = self._state(group).places
        mine = [change.key for change in changes]
        if any(key not in places or places[key].version != version for key in mine):
            raise OutcomeUnknown(
                f"Others wrote offsets of group {group!r} in {self._folder.shown} at the same moment, and it is not"
                " known whether these came before theirs.",
                hint="Run this again: it reads what is there and writes only what is missing.",
            )

    def _compact(self, below: str, snapshot: int | None) -> None:
        """Remove manifests older than the snapshot, except the newest ``keep`` manifests (F3)."""
        if snapshot is None:
            return
        for number in self._numbers(below)[self._keep :]:
            if number < snapshot:
                self._folder.remove(f"{below}/{range_manifests.name_of(number)}")

    # ------------------------------------------------------------ the folder

    def create(self) -> None:
        """Create the folder, unless it exists. Raises Refused for a file of that name on this machine."""
        if not self._folder.exists():
            self._refuse_file()
            self._folder.make()

    def check_writable(self, group: str) -> None:
        """Raise Refused if the folder is missing, or this user certainly may not write to it. Writes nothing."""
        common.check_name("group's name", group)
        self._refuse_missing()
        if not self._folder.may_be_written(folder_of(group)):
            raise Refused(
                f"The folder {self._folder.shown} may not be written by this user.",
                hint="Make it writable for the user that runs this.",
            )

    def _refuse_missing(self) -> None:
        if not self._folder.exists():
            self._refuse_file()
            raise NotCreated(
                f"There is no folder {self._folder.shown} with manifests of offsets.",
                hint="Correct the store's address, or create the folder:"
                " reconciler anchors import -c FILE --job JOB /dev/null",
            )

    def _refuse_file(self) -> None:
        if os.path.lexists(self._folder.shown):
            raise Refused(
                f"{self._folder.shown} is not a folder, and a files: store keeps its manifests in one.",
                hint="Correct the store's address.",
            )

    def close(self) -> None:
        """Nothing is held between calls."""


def _note(place: _Place) -> str:
    if not place.below_torn:
        return ""
    return f"the newer manifest {place.below_torn} is torn: the work of its batch may be repeated"


def _range(change: Change, now_ms: int) -> ManifestRange:
    topic, partition = change.key.topic, change.key.partition
    stored = common.with_time(change, now_ms)
    line = range_manifests.line_of(topic, partition, stored, stay=change.stay)
    return ManifestRange(topic, partition, stored, line, stay=change.stay)


def folder_of(group: str) -> str:
    """A group's folder: its name, percent-encoded except for letters, digits, ``-``, ``_`` and dots after the first.

    A name of more than 120 characters is cut, and its digest makes it unique.
    """
    name = quote(group, safe="").replace("~", "%7E")
    if name.startswith("."):
        name = f"%2E{name[1:]}"
    if len(name) > 120:
        name = f"{name[:100]}~{blake2b(group.encode(), digest_size=8).hexdigest()}"
    return name


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``files:PATH`` or ``files:URL``, with ``?keep=N`` and ``?walk=N``."""
    url, _, query = address.partition(":")[2].partition("?")
    if not url:
        raise ConfigError(
            "A files: address names no folder.", hint="Write files:/var/offsets, or files:webhdfs://HOST:9870/offsets."
        )
    wrong = partial(wrong_address, "The address of a files: store", "files:/var/offsets?keep=20&walk=1000")
    parameters = Parameters(query, wrong)
    keep, walk = parameters.number("keep", KEEP, 10**6), parameters.number("walk", WALK, 10**6)
    parameters.check_all_known()
    common.check_name("path of the files store", url)
    folder = open_folder(url)
    shown = f"files:{folder.shown if '://' in url else url}" + (f"?{query}" if query else "")
    return FilesStore(folder, address=shown, keep=keep, walk=walk)
