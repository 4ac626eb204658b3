"""Copies a checkpoint's files, and makes the copy visible when it is whole.

A torn copy is never taken for a checkpoint. Its first file is a barrier: an entry of the offset log, with the number
after the last, that no Spark can read, and that ``read_checkpoint`` refuses. ``metadata``, without which Spark 4.2 does
not start, is written last; then the barrier is removed.

- Where a folder is renamed in one step (local, HDFS and other file systems), this happens in a folder beside the new
  path, which is renamed then. The new path is whole, or does not exist.
- Object stores (S3, GCS, Azure's blobs) have no such step: the files are written at the new path. Of two processes that
  begin a copy there at once, one gets the path. Where a store ignores the condition, both may write the barrier, and
  the one whose text stays continues. Nothing is written or removed beside a barrier that is another's, or is gone: a
  query may already run there.

A copy that was cut off is not continued. Its folder stays, and may be deleted.
"""

from __future__ import annotations

import errno
import logging
import os
import posixpath
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, Refused
from reconciler.fileio import sync, sync_names
from reconciler.places.checkpoint.files import AT_ONCE, Listed, Tree, changed, is_own
from reconciler.places.checkpoint.reading import BARRIER
from reconciler.places.folder import one_line

CHUNK = 1024 * 1024
LAST = "metadata"
_NO_FLUSH = frozenset({errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP})
"""Errors of mounts that cannot flush a folder's names."""

log = logging.getLogger("reconciler.checkpoint")


@dataclass(frozen=True, slots=True)
class Copied:
    """How far a copy is: files and bytes done, of all."""

    files: int
    of_files: int
    size: int
    of_size: int


OnCopied = Callable[[Copied], None]


@dataclass(frozen=True, slots=True)
class _Work:
    """One copy. ``folder``: where its files are until it is whole. ``mark``: the text of its barrier.

    ``instead`` has new contents by name, also of files that did not exist.
    """

    source: Tree
    target: Tree
    folder: str
    listed: Listed
    names: tuple[str, ...]
    instead: Mapping[str, bytes]
    barrier: str
    mark: bytes
    on_copied: OnCopied

    @property
    def in_one_place(self) -> bool:
        return self.source.is_local and self.target.is_local

    def at(self, name: str) -> str:
        return posixpath.join(self.folder, name)

    def is_claimed(self) -> bool:
        """False if another process has finished the copy, or begun another one."""
        with suppress(FileNotFoundError), self.target.tried():
            return bytes(self.target.fs.cat_file(self.at(self.barrier))) == self.mark
        return False

    def refuse_taken(self) -> None:
        if not self.is_claimed():
            raise _taken(self.target)


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
    """Copy all listed files but ``leave_out``, and write the files of ``instead``.

    ``still`` is called when everything is copied and nothing is visible yet; it raises if the copy must not appear.
    Raises Changed if a listed file vanished, ConfigError if another process copies there or has, and OutcomeUnknown if
    the answer to the last step was lost.
    """
    out = set(leave_out) | set(instead)
    work = _Work(
        source=source,
        target=target,
        folder=_folder_beside(target) if target.renames else target.root,
        listed=listed,
        names=tuple(sorted(name for name in listed.files if name not in out)),
        instead=instead,
        barrier=barrier,
        mark=BARRIER + f"{uuid4().hex}\n".encode(),
        on_copied=on_copied or (lambda _: None),
    )
    with _removed_if_refused(work):
        _begin(work)
        done = _copy_files(work, [name for name in work.names if name != LAST])
        work.refuse_taken()
        _write_files(work)
        still()
        work.refuse_taken()
        done = _copy_files(work, [LAST] if LAST in work.names else [], done)
        _see_whole(work)
        work.refuse_taken()
        _remove_barrier(work)
        if target.renames:
            _publish(work)
    return done


# ---------------------------------------------------------------- begun, and cut off


def _folder_beside(target: Tree) -> str:
    """A new folder beside the target. Those of copies that were cut off are named."""
    parent, last = posixpath.split(target.root)
    begins = f".{last}.unfinished-"
    with suppress(FileNotFoundError), target.tried():
        for path in target.fs.ls(parent or "/", detail=False):
            if posixpath.basename(str(path).rstrip("/")).startswith(begins):
                log.warning("%s is an unfinished copy: delete it, if no other process is making it", path)
    return posixpath.join(parent, f"{begins}{uuid4().hex[:8]}")


def _begin(work: _Work) -> None:
    """Write the barrier. Raises ConfigError if another process was first."""
    target = work.target
    if target.renames:
        _make_folders(work)
    elif not target.is_empty():
        raise _taken(target)
    with suppress(FileExistsError):
        target.create(work.at(work.barrier), work.mark)
    work.refuse_taken()
    if set(target.listing(work.folder).files) != {work.barrier}:  # another process has finished a copy right before
        if target.creates:
            target.fs.rm_file(work.at(work.barrier))
        raise _taken(target)


def _make_folders(work: _Work) -> None:
    """Make the folders; those with folders in them come with these."""
    wanted = work.listed.folders | {posixpath.dirname(name) for name in (*work.instead, work.barrier)}
    parents = {posixpath.dirname(folder) for folder in wanted}

    def make(folder: str) -> None:
        with work.target.tried():
            work.target.fs.makedirs(work.at(folder), exist_ok=True)

    with ThreadPoolExecutor(1 if work.target.is_local else AT_ONCE) as pool:
        list(pool.map(make, sorted(wanted - parents - {""})))


@contextmanager
def _removed_if_refused(work: _Work) -> Iterator[None]:
    """Remove a copy that was refused. One that was cut off is left, and named."""
    try:
        yield
    except (Changed, ConfigError, Refused):
        with suppress(Exception):
            _remove(work)
        raise
    except OutcomeUnknown:
        raise
    except BaseException:
        log.warning("%s is an unfinished copy of %s, and may be deleted", _shown(work), work.source.shown)
        raise


def _shown(work: _Work) -> str:
    return posixpath.join(posixpath.dirname(work.target.shown.rstrip("/")), posixpath.basename(work.folder))


def _remove(work: _Work) -> None:
    """Remove the copy, but not where another process copies, or a query may run."""
    fs = work.target.fs
    fs.invalidate_cache()
    if not work.target.renames:
        if not work.is_claimed():
            return
        fs.rm([path for path in fs.find(work.folder) if path != work.at(work.barrier)])  # the barrier goes last
    fs.rm(work.folder, recursive=True)


# ---------------------------------------------------------------- files


def _copy_files(work: _Work, names: Sequence[str], done: Copied | None = None) -> Copied:
    sizes = {name: work.listed.files[name][0] for name in work.names}
    done = done or Copied(0, len(sizes), 0, sum(sizes.values()))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, _ in zip(names, pool.map(lambda name: _copy_present(work, name), names), strict=True):
            done = replace(done, files=done.files + 1, size=done.size + sizes[name])
            work.on_copied(done)
    return done


def _copy_present(work: _Work, name: str) -> None:
    try:
        _copy_file(work, name)
    except FileNotFoundError as err:
        if is_own(name):  # others may go
            raise changed(work.source, f"{name} vanished") from err


def _copy_file(work: _Work, name: str) -> None:
    source, target = work.source, work.target
    came_from, goes_to = posixpath.join(source.root, name), work.at(name)
    if work.in_one_place:
        with target.tried():
            shutil.copy2(came_from, goes_to)
            sync(goes_to)
    else:
        with source.tried():
            reading = source.fs.open(came_from, "rb")
        with reading:
            _pour(reading, goes_to, work)


def _pour(reading: Any, goes_to: str, work: _Work) -> None:
    with work.target.tried():
        writing = work.target.fs.open(goes_to, "wb")
    try:
        while True:
            with work.source.tried():
                chunk = reading.read(CHUNK)
            if not chunk:
                return
            with work.target.tried():
                writing.write(chunk)
    finally:
        with work.target.tried():  # closing sends what is left
            writing.close()


def _write_files(work: _Work) -> None:
    for name, data in work.instead.items():
        with work.target.tried():
            work.target.fs.pipe_file(work.at(name), data)
        if not work.in_one_place:
            continue
        # By these times Spark knows when an entry was written: new ones would look like real-time mode.
        with suppress(FileNotFoundError), work.target.tried():
            shutil.copystat(posixpath.join(work.source.root, name), work.at(name))
        with work.target.tried():
            sync(work.at(name))


def _see_whole(work: _Work) -> None:
    """Compare the copy's files with the expected ones by name, and the query's files also by length."""
    wanted = {name: work.listed.files[name][0] for name in work.names}
    wanted |= {name: len(data) for name, data in work.instead.items()} | {work.barrier: len(work.mark)}
    found = {name: size for name, (size, _) in work.target.listing(work.folder).files.items()}
    may_change = {name for name in work.names if not is_own(name)}
    wrong = sorted(name for name in {*wanted, *found} - may_change if wanted.get(name) != found.get(name))
    if wrong:
        raise Refused(
            f"The copy in {work.target.shown} is not whole: {wrong[0]} has {found.get(wrong[0], 'no')} bytes, and "
            f"should have {wanted.get(wrong[0], 'no')}.",
            hint="Find out what else writes there, then run this again.",
        )


# ---------------------------------------------------------------- made visible


def _remove_barrier(work: _Work) -> None:
    """Remove it. Raises OutcomeUnknown where the copy is visible then and the answer was lost."""
    fs, barrier, shown = work.target.fs, work.barrier, work.target.shown
    try:
        fs.rm_file(work.at(barrier))
    except Exception as err:
        if work.target.renames:
            raise Refused(f"{barrier} could not be removed from the copy: {one_line(err)}.", hint="Try again.") from err
        raise OutcomeUnknown(
            f"Whether the barrier {barrier} was removed from {shown} is not known ({one_line(err)}).",
            hint=f"The rest is complete: remove {barrier}, and the query can start.",
        ) from err


def _publish(work: _Work) -> None:
    """Give the finished copy its name. Raises OutcomeUnknown where the answer was lost."""
    target = work.target
    fs, root = target.fs, target.root
    with target.tried():
        if not target.is_empty():
            raise _appeared(target)
        if target.is_local:
            _flush_folders(work.folder)
            os.rename(work.folder, root)  # takes the place of an empty folder, and of nothing else
            sync_names(os.path.dirname(root))
            return
        if fs.exists(root):
            fs.rm(root, recursive=True)  # an empty folder, into which the copy would be moved
    try:
        fs.mv(work.folder, root)
    except Exception as err:
        raise OutcomeUnknown(
            f"Whether {target.shown} exists is not known: the request to rename the finished copy failed "
            f"({one_line(err)}).",
            hint="See with: reconciler checkpoint show. If it exists, it is whole.",
        ) from err
    with target.tried():
        _see_published(work)


def _flush_folders(folder: str) -> None:
    """Flush the names in a tree's folders to the disk, where that is possible."""
    for path, _, _ in os.walk(folder):
        try:
            sync(path)
        except OSError as err:
            if err.errno not in _NO_FLUSH:
                raise


def _see_published(work: _Work) -> None:
    """WebHDFS refuses in an answer that fsspec ignores, and moves the copy into a folder that exists meanwhile."""
    fs, root = work.target.fs, work.target.root
    fs.invalidate_cache()
    astray = posixpath.join(root, posixpath.basename(work.folder))
    if fs.exists(astray):
        fs.rm(astray, recursive=True)
        raise _appeared(work.target)
    if not fs.exists(root) or fs.exists(work.folder):
        raise Refused(f"The finished copy could not be named {work.target.shown}.", hint="Run this again.")


def _appeared(target: Tree) -> ConfigError:
    return ConfigError(f"{target.shown} appeared while the copy was made.", hint="Run this again.")


def _taken(target: Tree) -> ConfigError:
    return ConfigError(
        f"Another process is copying to {target.shown}, or has: it is not changed.",
        hint="Wait for it, and use its copy: see with reconciler checkpoint show. Or run this again.",
    )
