"""One ensemble through kazoo, in this product's words and errors: every call ends in time, and nothing leaks to the
terminal.

kazoo keeps a request that it cannot send until it is connected again, however long that takes. So a client whose
connection is gone, or that did not answer, is never used again: what it still holds dies with it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from kazoo import exceptions as zk_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.security import ACL, Id, make_digest_acl_credential

from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.retry import insist
from reconciler.stores.zookeeper.anchor_node import Znode

T = TypeVar("T")

SESSION_S = 10.0
AT_ONCE = 500
"""Requests under way together."""
_NOWHERE = "/reconciler-asks-whether-it-may/no-such-znode"

_SILENT = logging.getLogger("reconciler.stores.zookeeper.store.kazoo")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

_LOOK = "Check that the servers run and have a quorum, then run this again."
_LOST = (
    KazooTimeoutError,
    zk_errors.ConnectionLoss,
    zk_errors.SessionExpiredError,  # and ConnectionClosedError, which is one
    zk_errors.OperationTimeoutError,
    zk_errors.SessionMovedError,
    zk_errors.RequestTimeoutError,
    RuntimeError,  # an answer that kazoo could not understand
)
_CREDENTIALS = (zk_errors.AuthFailedError, zk_errors.SessionClosedRequireSaslError)
_RACES = (zk_errors.BadVersionError, zk_errors.NodeExistsError, zk_errors.NoNodeError)
_NOT_THE_CAUSE = (zk_errors.RolledBackError, zk_errors.RuntimeInconsistency)


@dataclass(frozen=True, slots=True)
class Create:
    """Make a znode with the access list of the one above it."""

    path: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Set:
    """Write a znode that is at this version."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode that is at this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Go on only if the znode is at this version."""

    path: str
    version: int


Operation: TypeAlias = Create | Set | Delete | Check


class Ensemble:
    """The servers at ``hosts``, as the user of ``credentials`` (``user:password``, scheme digest) if there are any.

    Every method raises Unreachable without an answer in ``timeout_s``, and Refused when a server says no.
    """

    def __init__(self, hosts: str, credentials: str | None = None, *, timeout_s: float) -> None:
        self._hosts = hosts
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._zk: Any = None

    @property
    def name(self) -> str:
        """How sentences call it."""
        return f"ZooKeeper at {self._hosts}"

    # ------------------------------------------------------------ reading

    def get(self, paths: Collection[str]) -> dict[str, Znode | None]:
        """The znodes, None where there is none; as new as if the leader had been asked."""
        found = self._ask(paths, "get_async")
        return {path: None if answer is None else _znode(*answer) for path, answer in found.items()}

    def children(self, paths: Collection[str]) -> dict[str, list[str] | None]:
        """The names below each znode, None where there is no such znode."""
        return self._ask(paths, "get_children_async")

    def existing(self, paths: Collection[str]) -> set[str]:
        """Those of the znodes that exist. No permission is needed to know."""
        return {path for path, answer in self._ask(paths, "exists_async").items() if answer is not None}

    def _ask(self, paths: Collection[str], method: str) -> dict[str, Any]:
        deadline = time.monotonic() + self._timeout_s

        def ask() -> dict[str, Any]:
            zk = self._connected()
            self._answer(zk.sync_async("/"), "/")  # the server that was reached may be behind the leader
            found: dict[str, Any] = {}
            for some in _batches(dict.fromkeys(paths), AT_ONCE):
                asked = [(path, getattr(zk, method)(path)) for path in some]
                found |= {path: self._answer(answer, path) for path, answer in asked}
            return found

        # Nothing is written here, and a connection that died while nobody used it is not worth a word.
        return insist(ask, give_up=lambda: time.monotonic() >= deadline)

    def _answer(self, waiting: Any, path: str) -> Any:
        try:
            return waiting.get(timeout=self._timeout_s)
        except zk_errors.NoNodeError:
            return None
        except _LOST as err:
            self._abandon()
            raise self._no_answer(err) from err
        except zk_errors.KazooException as err:
            raise self._refused(err, f"read {path}") from err

    # ------------------------------------------------------------ writing

    def commit(self, operations: Sequence[Operation]) -> bool:
        """All operations in one transaction. False, with nothing written, where a version was another by now, a znode
        to make was there, or one to change was not.

        Raises OutcomeUnknown where the answer did not come.
        """
        try:
            lists = self._access_lists([op.path for op in operations if isinstance(op, Create)])
        except Refused:
            self.permission_to(operations)  # that a write is not allowed is the plainer word, if it is not
            raise
        return self._send(operations, lists)

    def permission_to(self, operations: Sequence[Operation]) -> None:
        """Raise Refused if the operations would not be allowed. Nothing is written: a last one is sure to fail."""
        try:
            if self._send([*operations, Check(_NOWHERE, 0)], {}):
                raise AssertionError("a transaction that cannot succeed did")
        except OutcomeUnknown as err:
            raise Unreachable(f"{self.name} did not answer; nothing was written.", hint=_LOOK) from err

    def _send(self, operations: Sequence[Operation], lists: Mapping[str, list[ACL]]) -> bool:
        transaction = self._connected().transaction()
        for operation in operations:
            _add(transaction, operation, lists)
        try:
            answers = transaction.commit_async().get(timeout=self._timeout_s)
        except _LOST as err:
            self._abandon()
            raise OutcomeUnknown(
                f"{self.name} did not say whether it took what was written ({_word(err)}).",
                hint="Check the servers, then run this again: it finishes what was not taken.",
            ) from err
        except zk_errors.KazooException as err:
            raise self._refused(err, "write") from err
        return self._judge(operations, answers)

    def _judge(self, operations: Sequence[Operation], answers: Sequence[Any]) -> bool:
        """What the answers to a transaction's operations mean; one that fails undoes all others."""
        for operation, answer in zip(operations, answers, strict=True):
            if not isinstance(answer, Exception) or isinstance(answer, _NOT_THE_CAUSE):
                continue
            if isinstance(answer, _RACES):
                return False
            verb = {Create: "create", Set: "write", Delete: "delete", Check: "read"}[type(operation)]
            raise self._refused(answer, f"{verb} {operation.path}", nothing_written=True)
        return not any(isinstance(answer, Exception) for answer in answers)

    def _access_lists(self, paths: Iterable[str]) -> dict[str, list[ACL]]:
        """The list for each znode to be made: that of the nearest one above it that is there.

        The job that is to go on with these znodes may do with them what it may do with those that it made.
        """
        above = {path: _lineage(path) for path in paths}
        if not above:
            return {}
        there = self.existing({each for lineage in above.values() for each in lineage})
        nearest = {path: next(each for each in lineage if each in there) for path, lineage in above.items()}
        known = {
            path: self._unmasked(path, answer[0]) if answer else []
            for path, answer in self._ask(set(nearest.values()), "get_acls_async").items()
        }
        return {path: known[origin] for path, origin in nearest.items()}

    def _unmasked(self, path: str, found: Sequence[ACL]) -> list[ACL]:
        """A server hides the digests of a list from whoever may not change it; one's own can be worked out."""
        own = make_digest_acl_credential(*self._credentials.split(":", 1)) if self._credentials else ":"
        whole = []
        for entry in found:
            user, _, digest = entry.id.id.rpartition(":")
            if entry.id.scheme == "digest" and digest == "x":
                if user != own.partition(":")[0]:
                    raise Refused(
                        f"{self.name} does not show who may use {path}, so that no znode like it can be made below it;"
                        " nothing was written.",
                        hint=f"Use credentials that may administer {path}, or have the znodes below it made.",
                    )
                entry = ACL(entry.perms, Id("digest", own))
            whole.append(entry)
        return whole

    # ------------------------------------------------------------ the connection

    def close(self) -> None:
        """End the session. Waits a moment, not longer, for the server to agree."""
        ending = self._abandon()
        if ending is not None:
            ending.join(timeout=1.0)

    def _connected(self) -> Any:
        if self._zk is not None and not self._zk.connected:
            self._abandon()
        if self._zk is None:
            credentials = [("digest", self._credentials)] if self._credentials else None
            self._zk = KazooClient(
                hosts=self._hosts,
                timeout=SESSION_S,
                auth_data=credentials,
                handler=_QuietHandler(),
                logger=_SILENT,
                connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 1.0},
            )
            if not self._zk.start_async().wait(self._timeout_s):
                self._abandon()
                raise Unreachable(
                    f"{self.name} could not be reached within {self._timeout_s:g} s; nothing was written.",
                    hint="Check the hosts and ports of the store's address, and that the servers run.",
                )
        return self._zk

    def _abandon(self) -> threading.Thread | None:
        """Never use this client again. Ending it takes as long as the server, so that nobody waits for it."""
        zk, self._zk = self._zk, None
        if zk is None:
            return None
        ending = threading.Thread(target=_end, args=(zk,), name="zookeeper-end", daemon=True)
        ending.start()
        return ending

    # ------------------------------------------------------------ sentences

    def _no_answer(self, err: Exception) -> Unreachable:
        return Unreachable(
            f"{self.name} did not answer ({_word(err)}); nothing was written.",
            hint=_LOOK,
        )

    def _refused(self, err: Exception, verb: str, *, nothing_written: bool = False) -> ReconcilerError:
        end = "; nothing was written" if nothing_written else ""
        if isinstance(err, _CREDENTIALS):
            self._abandon()
            return Refused(
                f"{self.name} does not take these credentials{end}.",
                hint="Correct user and password in the store's address (zookeeper://USER:PASSWORD@HOSTS/…).",
            )
        if isinstance(err, zk_errors.NoAuthError):
            who = "this user" if self._credentials else "a client without credentials"
            return Refused(
                f"{self.name} does not allow {who} to {verb}{end}.",
                hint="Have it allowed (setAcl in zkCli.sh), or put the right user and password into the store's"
                " address.",
            )
        if isinstance(err, zk_errors.NotEmptyError):
            return Refused(
                f"{self.name} cannot {verb}: other znodes are below it{end}.",
                hint="See what put them there, and delete them first.",
            )
        return Refused(f"{self.name} refused to {verb}: {_word(err)}{end}.", hint="See the server's log for why.")


class _QuietHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Its threads end without a traceback on the terminal; whoever waits for them hears of it by the clock."""

    def spawn(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def run() -> None:
            with suppress(Exception):
                func(*args, **kwargs)

        return super().spawn(run)


def _end(zk: Any) -> None:
    with suppress(Exception):
        zk.stop()
    with suppress(Exception):
        zk.close()


def _add(transaction: Any, operation: Operation, lists: Mapping[str, list[ACL]]) -> None:
    match operation:
        case Create(path, data):
            transaction.create(path, data, acl=lists.get(path) or None)
        case Set(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path, version):
            transaction.delete(path, version)
        case Check(path, version):
            transaction.check(path, version)


def _znode(data: bytes | None, stat: Any) -> Znode:
    return Znode(data or b"", stat.version, stat.czxid, stat.mzxid, stat.mtime)


def _lineage(path: str) -> list[str]:
    """The znodes above ``path``, the nearest first, with the root."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) or "/" for count in range(len(parts), 0, -1)]


def _word(err: Exception) -> str:
    if isinstance(err, KazooTimeoutError):
        return "no answer in time"
    if isinstance(err, zk_errors.SessionExpiredError):
        return "the session ended"
    if isinstance(err, zk_errors.ConnectionLoss):
        return "the connection was lost"
    return type(err).__name__.removesuffix("Error")


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
