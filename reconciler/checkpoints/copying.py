"""Copies a checkpoint's files, and makes the copy visible when it is whole.

A torn copy is never taken for a checkpoint:

- Where a directory can be renamed in one step (local, HDFS and other file systems), everything is copied under another
  name beside the new path, and renamed last. The new path is whole, or does not exist.
- Object stores (S3, GCS, Azure's blobs) have no such step. The first file written is a barrier: an entry of the offset
  log, with the number after the last, that no Spark can read. It is removed last, after ``metadata`` is written. So
  Spark refuses to start on a torn copy: every version because of the barrier, and 4.2 also without ``metadata``.
  Nothing is written or removed beside a barrier that is another's, or is gone: a query may run there by now.

A copy that was cut off is gone on with. Its name, or the barrier's text, has a digest of all that is copied: names,
sizes and times. So the files in it are the ones that are wanted; one of full length is whole, since its length grows as
it is written. That does not hold for a local disk after a power failure: there the digest has the boot's id.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import posixpath
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from reconciler.checkpoints.claim import CopyClaim, claim_copy
from reconciler.checkpoints.files import AT_ONCE, Listed, Tree, changed
from reconciler.checkpoints.local import Copier, boot, flush
from reconciler.checkpoints.needed import is_immutable
from reconciler.checkpoints.own import is_own
from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, Refused, Unreachable
from reconciler.fileio import sync_names
from reconciler.folder import one_line

CHUNK = 1024 * 1024
LOCAL_AT_ONCE = 4
LAST = "metadata"
_COPIES_ITSELF = frozenset({"s3", "s3a", "gs", "gcs", "memory"})
"""Stores that copy an object on a request. Azure's may answer before it has copied."""

log = logging.getLogger("reconciler.checkpoint")


@dataclass(frozen=True, slots=True)
class Copied:
    """How far a copy is: files and bytes done, of all. ``shared``: files whose blocks the original has, too."""

    files: int
    of_files: int
    size: int
    of_size: int
    shared: int = 0


OnCopied = Callable[[Copied], None]


@dataclass(frozen=True, slots=True)
class _Work:
    """One copy. ``instead`` has new contents by name, also of files that did not exist."""

    source: Tree
    target: Tree
    listed: Listed
    names: tuple[str, ...]
    instead: Mapping[str, bytes]
    still: Callable[[], None]
    on_copied: OnCopied

    @property
    def digest(self) -> str:
        parts = [
            self.source.shown,
            boot() if self.target.is_local else "",
            [(name, *self.listed.files[name]) for name in self.names],
            sorted(self.instead),
        ]
        return sha256(json.dumps(parts).encode()).hexdigest()[:16]

    @property
    def in_one_place(self) -> bool:
        return self.source.is_local and self.target.is_local

    @property
    def copied_by_server(self) -> bool:
        """Whether the store copies, so that no byte passes through here."""
        fs = self.source.fs
        protocols = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        return bool(protocols & _COPIES_ITSELF) and fs == self.target.fs


def copy_tree(
    source: Tree,
    target: Tree,
    listed: Listed,
    *,
    leave_out: Iterable[str],
    instead: Mapping[str, bytes],
    barrier: str,
    still: Callable[[], None],
    on_copied: OnCopied | None = None,
) -> Copied:
    """Copy all listed files but ``leave_out``, and those of ``instead`` as they are there.

    ``still`` is called when everything is copied and nothing is visible yet; it raises if the copy must not appear.
    Raises Changed if a listed file vanished, ConfigError if another process copies there or has, and OutcomeUnknown if
    the answer to the last step was lost. After an error no part of a copy that was begun here is left, unless another
    machine's file system went away or the command was interrupted.
    """
    out = set(leave_out) | set(instead)
    names = tuple(sorted(name for name in listed.files if name not in out))
    work = _Work(
        source=source,
        target=target,
        listed=listed,
        names=names,
        instead=instead,
        still=still,
        on_copied=on_copied or (lambda _: None),
    )
    return _copy_and_rename(work) if target.renames else _copy_in_place(work, barrier)


def _copy_and_rename(work: _Work) -> Copied:
    target = work.target
    parent, last = posixpath.split(target.root)
    beside = posixpath.join(parent, f".{last}.unfinished-{work.digest}")
    with _held(target, beside), _removed_on_failure(work, beside):
        there = target.listing(beside)
        _make_folders(work, beside, there)
        done = _copy_files(work, beside, there, work.names)
        _write_files(target, work.instead, beside)
        _keep_times(work, beside)
        work.still()
        _see_whole(work, beside)
        _publish(target, beside)
    return done


@contextmanager
def _held(target: Tree, beside: str) -> Iterator[None]:
    """Make the folder. On this machine no other process copies into it meanwhile."""
    with target.tried():
        target.fs.makedirs(beside, exist_ok=True)
    if not target.is_local:
        yield
        return
    descriptor = os.open(beside, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"Another process is copying to {target.shown}.", hint="Wait for it, or choose another NEW_PATH."
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _removed_on_failure(work: _Work, folder: str, claim: CopyClaim | None = None) -> Iterator[None]:
    """Remove a copy that failed. It is kept if the same command may go on with it, and that would spare requests."""
    try:
        yield
    except BaseException as error:
        away = isinstance(error, Unreachable | OutcomeUnknown) and not isinstance(error, Refused)
        if (away or not isinstance(error, Exception)) and not work.in_one_place:
            log.warning("the files copied so far are kept: the same command goes on from there")
            raise
        with suppress(Exception):
            fs = work.target.fs
            fs.invalidate_cache()
            if (claim is None or claim.may_be_removed(work.target)) and fs.exists(folder):
                last = None if claim is None else posixpath.join(folder, claim.barrier)
                if last is not None and (others := [path for path in fs.find(folder) if path != last]):
                    fs.rm(others)
                fs.rm(folder, recursive=True)
        raise


def _make_folders(work: _Work, beside: str, there: Listed) -> None:
    """Make the folders that are missing; those with folders in them come with these."""
    wanted = work.listed.folders | {posixpath.dirname(name) for name in work.instead}
    parents = {posixpath.dirname(folder) for folder in wanted}
    missing = sorted(wanted - parents - there.folders - {""})

    def make(folder: str) -> None:
        with work.target.tried():
            work.target.fs.makedirs(posixpath.join(beside, folder), exist_ok=True)

    with ThreadPoolExecutor(1 if work.target.is_local else AT_ONCE) as pool:
        list(pool.map(make, missing))


def _see_whole(work: _Work, folder: str) -> None:
    """Compare the copy's files with those that should be there, by name, and by length if they are the query's."""
    wanted = {name: work.listed.files[name][0] for name in work.names}
    wanted |= {name: len(data) for name, data in work.instead.items()}
    found = {name: size for name, (size, _) in work.target.listing(folder).files.items()}
    may_change = {name for name in work.names if not is_own(name)}
    wrong = sorted(name for name in {*wanted, *found} - may_change if wanted.get(name) != found.get(name))
    if wrong:
        raise Refused(
            f"The copy in {work.target.shown} is not whole: {wrong[0]} has {found.get(wrong[0], 'no')} bytes, and "
            f"should have {wanted.get(wrong[0], 'no')}.",
            hint="Find out what else writes there, then run this again.",
        )


def _publish(target: Tree, beside: str) -> None:
    """Give the finished copy its name. Raises OutcomeUnknown where the answer was lost."""
    fs, root = target.fs, target.root
    with target.tried():
        if not target.is_empty():
            raise _appeared(target)
        if target.is_local:
            flush(beside)
            os.rename(beside, root)  # takes the place of an empty folder, and of nothing else
            sync_names(os.path.dirname(root))
            return
        if fs.exists(root):
            fs.rm(root, recursive=True)  # an empty folder, into which the copy would be moved
    try:
        fs.mv(beside, root)
    except Exception as err:
        raise OutcomeUnknown(
            f"Whether {target.shown} exists is not known: the request to rename the finished copy failed "
            f"({one_line(err)}).",
            hint="See with: reconciler checkpoint show. If it exists, it is whole.",
        ) from err
    with target.tried():
        _see_published(target, beside)


def _see_published(target: Tree, beside: str) -> None:
    """WebHDFS refuses in an answer that fsspec ignores, and moves the copy into a folder that exists by now."""
    fs, root = target.fs, target.root
    fs.invalidate_cache()
    astray = posixpath.join(root, posixpath.basename(beside))
    if fs.exists(astray):
        fs.rm(astray, recursive=True)
        raise _appeared(target)
    if not fs.exists(root) or fs.exists(beside):
        raise Refused(f"The finished copy could not be named {target.shown}.", hint="Choose another NEW_PATH.")


def _appeared(target: Tree) -> ConfigError:
    return ConfigError(f"{target.shown} appeared while the copy was made.", hint="Choose another NEW_PATH.")


def _copy_in_place(work: _Work, barrier: str) -> Copied:
    target, root = work.target, work.target.root
    claim = claim_copy(target, barrier, work.digest, work.source.shown)
    with _removed_on_failure(work, root, claim):
        there = Listed({}, frozenset()) if claim.is_own else target.listing()
        first = tuple(name for name in work.names if name != LAST)
        done = _copy_files(work, root, there, first)
        claim.refuse_taken(target)
        _write_files(target, work.instead, root)
        work.still()
        claim.refuse_taken(target)
        if LAST in work.names:
            done = _copy_files(work, root, there, (LAST,), done)
        _see_whole(replace(work, instead={**work.instead, barrier: claim.text}), root)
        claim.refuse_taken(target)
    try:
        target.fs.rm_file(posixpath.join(root, barrier))
    except Exception as err:
        raise OutcomeUnknown(
            f"Whether the barrier {barrier} was removed from {target.shown} is not known ({one_line(err)}).",
            hint=f"The rest is complete: remove {barrier}, and the query can start.",
        ) from err
    return done


def _copy_files(work: _Work, to: str, there: Listed, names: Sequence[str], done: Copied | None = None) -> Copied:
    """Copy the files that are not there in full length yet."""
    sizes = {name: work.listed.files[name][0] for name in work.names}
    done = done or Copied(0, len(sizes), 0, sum(sizes.values()))
    kept = [name for name in names if name in there.files and there.files[name][0] == sizes[name]]
    if kept:
        log.info("%d files are there already, of a copy that was cut off", len(kept))
    done = _plus(done, kept, sizes)
    left = sorted(set(names) - set(kept))
    together = 50 if work.in_one_place else 1
    tasks = [left[first : first + together] for first in range(0, len(left), together)]
    copier = Copier()
    with ThreadPoolExecutor(LOCAL_AT_ONCE if work.in_one_place else AT_ONCE) as pool:
        shared = pool.map(lambda task: sum(_copy_present(work, copier, name, to) for name in task), tasks)
        for task, count in zip(tasks, shared, strict=True):
            done = _plus(done, task, sizes, count)
            work.on_copied(done)
    return done


def _plus(done: Copied, names: Sequence[str], sizes: Mapping[str, int], shared: int = 0) -> Copied:
    size = sum(sizes[name] for name in names)
    return replace(done, files=done.files + len(names), size=done.size + size, shared=done.shared + shared)


def _copy_present(work: _Work, copier: Copier, name: str, to: str) -> bool:
    try:
        return _copy_file(work, copier, name, to)
    except Changed:
        if is_own(name):
            raise
        return False  # not the query's: it may go


def _copy_file(work: _Work, copier: Copier, name: str, to: str) -> bool:
    """Copy one file; True if the copy shares its blocks."""
    source, target = work.source, work.target
    came_from, goes_to = posixpath.join(source.root, name), posixpath.join(to, name)
    try:
        if work.in_one_place:
            with target.tried():
                return copier.copy(came_from, goes_to, immutable=is_immutable(name))
        if work.copied_by_server:
            with target.tried():
                target.fs.cp_file(came_from, goes_to)
            return False
        with source.tried():
            reading = source.fs.open(came_from, "rb")
    except FileNotFoundError as err:
        raise changed(source, f"{name} vanished") from err
    with reading:
        _pour(reading, goes_to, work, name)
    return False


def _pour(reading: Any, goes_to: str, work: _Work, name: str) -> None:
    source, target = work.source, work.target
    with target.tried():
        writing = target.fs.open(goes_to, "wb")
    try:
        while True:
            try:
                with source.tried():
                    chunk = reading.read(CHUNK)
            except FileNotFoundError as err:
                raise changed(source, f"{name} vanished") from err
            if not chunk:
                return
            with target.tried():
                writing.write(chunk)
    finally:
        with target.tried():  # closing sends what is left
            writing.close()


def _keep_times(work: _Work, to: str) -> None:
    """Give the rewritten files the times and permissions of the originals, as the copied ones have them.

    The times tell when an entry was written: with new ones the query would look like one of real-time mode.
    """
    if not work.in_one_place:
        return
    for name in sorted(set(work.instead) & set(work.listed.files)):
        try:
            with work.target.tried():
                shutil.copystat(posixpath.join(work.source.root, name), posixpath.join(to, name))
        except FileNotFoundError as err:
            raise changed(work.source, f"{name} vanished") from err


def _write_files(target: Tree, contents: Mapping[str, bytes], to: str) -> None:
    with target.tried():
        for name, data in contents.items():
            path = posixpath.join(to, name)
            if target.is_local:
                with suppress(FileNotFoundError):
                    os.unlink(path)  # a new file: never into one that may have another name
            target.fs.pipe_file(path, data)
