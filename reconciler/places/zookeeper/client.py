"""One ensemble through kazoo, with this product's errors: every call ends in time, and the client prints nothing.

kazoo keeps a request that it cannot send until it is connected again, however long that takes. So a client that lost
its connection or gave no answer is never used again, and its unsent requests are dropped with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from kazoo import exceptions as zk_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.security import ACL

from reconciler.core.errors import Away, OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.retry import insist
from reconciler.waits import for_seconds, none_resolves, waiting

SESSION_S = 10.0
AT_ONCE = 500
"""Requests under way together."""
ANY_VERSION = -1
"""The version of a write that accepts any."""
PROBE = "reconciler-permission-probe"
"""A znode that permission tests name. It is never created."""

STEP_S = 0.1
_UNRESOLVED = "Cannot resolve"

_CHECK_SERVERS = "Check that the servers run and have a quorum, then run this again."
_LOST = (
    KazooTimeoutError,
    zk_errors.ConnectionLoss,
    zk_errors.SessionExpiredError,  # and ConnectionClosedError, which is one
    zk_errors.OperationTimeoutError,
    zk_errors.SessionMovedError,
    zk_errors.RequestTimeoutError,
    RuntimeError,  # an answer that kazoo could not parse
)
_CREDENTIALS = (zk_errors.AuthFailedError, zk_errors.SessionClosedRequireSaslError)
_RACES = (zk_errors.BadVersionError, zk_errors.NodeExistsError, zk_errors.NoNodeError)
_NOT_THE_CAUSE = (zk_errors.RolledBackError, zk_errors.RuntimeInconsistency)


@dataclass(frozen=True, slots=True)
class Znode:
    """One znode as the server describes it: its bytes, data version, zxids of creation and of change, epoch ms."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    mtime_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode with the access list of the one above it."""

    path: str
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Set:
    """Write a znode that is at this version."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the transaction unless the znode is at this version."""

    path: str
    version: int


Operation: TypeAlias = Create | Set | Check


class Ensemble:
    """The servers at ``hosts``, used with ``credentials`` (``user:password``, scheme digest) if there are any.

    Every method raises Unreachable without an answer in ``timeout_s``, and Refused where a server refuses.
    """

    def __init__(self, hosts: str, credentials: str | None = None, *, timeout_s: float) -> None:
        self.name = f"ZooKeeper at {hosts}"
        """The ensemble in messages."""
        self._hosts = hosts
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._zk: Any = None

    # ------------------------------------------------------------ reading

    def get(self, paths: Collection[str]) -> dict[str, Znode | None]:
        """The znodes, None where there is none; as current as the leader's."""
        found = self._read(paths, "get_async")
        return {path: None if answer is None else _znode(*answer) for path, answer in found.items()}

    def children(self, paths: Collection[str]) -> dict[str, list[str] | None]:
        """The names below each znode, None where there is no such znode."""
        return self._read(paths, "get_children_async")

    def existing(self, paths: Collection[str]) -> set[str]:
        """The existing ones of the znodes. Asking needs no permission."""
        return {path for path, answer in self._read(paths, "exists_async").items() if answer is not None}

    def _read(self, paths: Collection[str], method: str) -> dict[str, Any]:
        """The answers of kazoo's ``method`` by path, None for a missing znode; retried until the timeout."""
        names = list(dict.fromkeys(paths))

        def read_once() -> dict[str, Any]:
            zk = self._connected()
            self._answer(zk.sync_async("/"), "/")  # the connected server may be behind the leader
            found: dict[str, Any] = {}
            for first in range(0, len(names), AT_ONCE):
                asked = [(path, getattr(zk, method)(path)) for path in names[first : first + AT_ONCE]]
                found |= {path: self._answer(answer, path) for path, answer in asked}
            return found

        return insist(read_once, left_s=for_seconds(self._timeout_s))

    def _answer(self, answer: Any, path: str) -> Any:
        try:
            return self._got(answer)
        except zk_errors.NoNodeError:
            return None
        except _LOST as err:
            self._abandon()
            raise Unreachable(
                f"{self.name} did not answer ({_cause(err)}); nothing was written.", hint=_CHECK_SERVERS
            ) from err
        except zk_errors.KazooException as err:
            raise self._refused(err, f"read {path}") from err

    # ------------------------------------------------------------ writing

    def commit(self, operations: Sequence[Operation]) -> bool:
        """Carry out all operations in one transaction.

        False, with nothing written, where a version has changed, a znode to create exists, or one to change does not.
        Raises OutcomeUnknown without an answer.
        """
        try:
            lists = self._access_lists([op.path for op in operations if isinstance(op, Create)])
        except Refused:
            self.check_permission(operations)  # where the write is not allowed, that is the clearer error
            raise
        return self._send(operations, lists)

    def check_permission(self, operations: Sequence[Operation]) -> None:
        """Raise Refused if the operations would not be allowed. A last one that must fail keeps them from happening."""
        try:
            if self._send([*operations, Check(f"/{PROBE}/no-such-znode", 0)], {}):
                raise AssertionError("a transaction that cannot succeed did")
        except OutcomeUnknown as err:
            raise Unreachable(f"{self.name} did not answer; nothing was written.", hint=_CHECK_SERVERS) from err

    def _send(self, operations: Sequence[Operation], lists: Mapping[str, Sequence[ACL]]) -> bool:
        transaction = self._connected().transaction()
        for operation in operations:
            _add(transaction, operation, lists)
        try:
            answers = self._got(transaction.commit_async())
        except _LOST as err:
            self._abandon()
            raise OutcomeUnknown(
                f"{self.name} did not say whether it took what was written ({_cause(err)}).",
                hint="Check the servers, then run this again: it completes the write.",
            ) from err
        except zk_errors.KazooException as err:
            raise self._refused(err, "write") from err
        return self._succeeded(operations, answers)

    def _succeeded(self, operations: Sequence[Operation], answers: Sequence[Any]) -> bool:
        """True if a transaction took place; one failed operation undoes all others. Raises Refused as ``commit``."""
        for operation, answer in zip(operations, answers, strict=True):
            if not isinstance(answer, Exception) or isinstance(answer, _NOT_THE_CAUSE):
                continue
            if isinstance(answer, _RACES):
                return False
            verb = {Create: "create", Set: "write", Check: "read"}[type(operation)]
            raise self._refused(answer, f"{verb} {operation.path}", nothing_written=True)
        return not any(isinstance(answer, Exception) for answer in answers)

    def _access_lists(self, paths: Iterable[str]) -> dict[str, Sequence[ACL]]:
        """The list for each znode to create: that of the nearest existing znode above it.

        So the job has the same permissions on these znodes as on its own.
        """
        above = {path: [*reversed(ancestors(path)), "/"] for path in paths}
        if not above:
            return {}
        existing = self.existing({each for lineage in above.values() for each in lineage})
        nearest = {path: next(each for each in lineage if each in existing) for path, lineage in above.items()}
        known = {
            path: self._readable(path, answer[0]) if answer else []
            for path, answer in self._read(set(nearest.values()), "get_acls_async").items()
        }
        return {path: known[origin] for path, origin in nearest.items()}

    def _readable(self, path: str, found: Sequence[ACL]) -> Sequence[ACL]:
        """The list itself. Raises Refused if the server masks its digests, for a user who may not change it."""
        if any(entry.id.scheme == "digest" and entry.id.id.endswith(":x") for entry in found):
            raise Refused(
                f"{self.name} does not show who may use {path}, so no znode with the same access list can be"
                " created below it; nothing was written.",
                hint=f"Use credentials that may administer {path}, or have the znodes below it created.",
            )
        return found

    def _got(self, answer: Any) -> Any:
        """The result of kazoo, within the time limit. Raises its errors."""
        with waiting(self.name, for_seconds(self._timeout_s)):
            return answer.get(timeout=self._timeout_s)

    # ------------------------------------------------------------ the connection

    def close(self) -> None:
        """End the session. Waits at most a second for the server."""
        ending = self._abandon()
        if ending is not None:
            ending.join(timeout=1.0)

    def _connected(self) -> Any:
        if self._zk is not None and not self._zk.connected:
            self._abandon()
        if self._zk is None:
            credentials, heard = [("digest", self._credentials)] if self._credentials else None, _Heard()
            self._zk = KazooClient(
                hosts=self._hosts,
                timeout=SESSION_S,
                auth_data=credentials,
                handler=_QuietHandler(),
                logger=heard.logger(),
                connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 1.0},
            )
            self._await(self._zk.start_async(), heard)
        return self._zk

    def _await(self, started: Any, heard: _Heard) -> None:
        """Wait for a new client's connection. Raises Refused at once where no host's name resolves."""
        left_s = for_seconds(self._timeout_s)
        with waiting(self.name, left_s, lambda: heard.last):
            while not started.wait(STEP_S):
                if heard.last.startswith(_UNRESOLVED) and none_resolves(self._zk.hosts):
                    self._abandon()
                    raise Refused(
                        f"No name of {self.name} resolves; nothing was written.",
                        hint="Correct the hosts of the store's address, or this machine's name resolution (DNS).",
                    )
                if left_s() <= 0:
                    self._abandon()
                    why = f" ({heard.last})" if heard.last else ""
                    raise Away(
                        f"{self.name} could not be reached within {self._timeout_s:g} s{why}; nothing was written.",
                        hint="Check the hosts and ports of the store's address, and that the servers run.",
                    )

    def _abandon(self) -> threading.Thread | None:
        """Drop the client for good. It ends in a thread of its own, since that can take as long as the server."""
        zk, self._zk = self._zk, None
        if zk is None:
            return None
        ending = threading.Thread(target=_end, args=(zk,), name="zookeeper-end", daemon=True)
        ending.start()
        return ending

    # ------------------------------------------------------------ errors

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
                hint="Grant the permission (setAcl in zkCli.sh), or put the right user and password into the store's"
                " address.",
            )
        if isinstance(err, zk_errors.NotEmptyError):
            return Refused(
                f"{self.name} cannot {verb}: other znodes are below it{end}.",
                hint="Find out which program created them, and delete them first.",
            )
        return Refused(
            f"{self.name} refused to {verb}: {_cause(err)}{end}.", hint="See the server's log for the cause."
        )


class _Heard(logging.Handler):
    """Keeps the last warning of kazoo, which says so why it cannot connect, and prints nothing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()

    def logger(self) -> logging.Logger:
        logger = logging.Logger("kazoo", logging.WARNING)
        logger.addHandler(self)
        return logger


class _QuietHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Its threads end without a traceback on the terminal; a caller that waits for one runs into its timeout."""

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


def _add(transaction: Any, operation: Operation, lists: Mapping[str, Sequence[ACL]]) -> None:
    match operation:
        case Create(path, data):
            transaction.create(path, data, acl=lists.get(path) or None)
        case Set(path, data, version):
            transaction.set_data(path, data, version)
        case Check(path, version):
            transaction.check(path, version)


def _znode(data: bytes | None, stat: Any) -> Znode:
    return Znode(data or b"", stat.version, stat.czxid, stat.mzxid, stat.mtime)


def ancestors(path: str) -> list[str]:
    """All znodes above ``path``, the highest first, without the root."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]


def _cause(err: Exception) -> str:
    if isinstance(err, KazooTimeoutError):
        return "no answer in time"
    if isinstance(err, zk_errors.SessionExpiredError):
        return "the session ended"
    if isinstance(err, zk_errors.ConnectionLoss):
        return "the connection was lost"
    return type(err).__name__.removesuffix("Error")
