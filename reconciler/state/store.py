"""The state store: logs of numbered entries, appended and never changed; and the table of systems that can keep it.

An entry is appended under exactly the number after the newest that its writer has read. A back-end gives that number to
one writer: the entry is there whole, or not at all.

- S1  Of two writers of one number, one gets False. It has written nothing.
- S2  Each entry has a nonce. A back-end whose reply is lost, or whose client repeated the request, is asked what the
      number holds: the nonce decides. If that cannot be read either, the outcome is unknown (exit code 7).
- S3  A pruned number is free again. A writer that comes so late takes its entry back: at least ``LEAST_KEPT`` newer
      ones exist, and the one before does not.
- S4  Creating a store appends one number twice. A system that accepts both cannot keep state, and is refused: some
      S3-compatible stores ignore If-None-Match.
- S5  A store has a random id, made with it. Reading one that was never created raises ``NotCreated``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from reconciler.config.addresses import scheme_of
from reconciler.core.errors import ConfigError, NotCreated, OutcomeUnknown, ReconcilerError, Refused
from reconciler.places.registry import load_module

FIRST = 1
"""The number of a log's first entry."""
LEAST_KEPT = 16
"""Pruning keeps at least so many entries."""
MAKE_IT = (
    "If jobs have run with it before, mount it, restore it, or correct [state] store. Only the first time, make it: "
    "reconciler init -c FILE"
)
"""The hint if the store does not exist. A new store in place of one that is not mounted has no job."""
_IDENTITY = "store"
_NONCE = "nonce"


class Held(NamedTuple):
    """An entry as a back-end keeps it."""

    number: int
    entry: bytes


class Backend(Protocol):
    """One system that can keep state. A module of its own for each.

    Raises Unreachable and Refused with nothing written, NotCreated if the store does not exist, and OutcomeUnknown if
    an append may have happened.
    """

    @property
    def shown(self) -> str:
        """The address for messages, without secrets."""

    def create(self) -> None:
        """Create the table or folder that holds the logs, unless it exists."""

    def put(self, log: str, number: int, entry: bytes) -> bool:
        """Write the entry if the number is free; False if it is taken."""

    def read(self, log: str, newest: int) -> Sequence[Held]:
        """At most ``newest`` entries, the newest first. Empty if nothing was appended."""

    def read_one(self, log: str, number: int) -> Held | None: ...

    def remove(self, log: str, number: int) -> None:
        """Remove one entry, if it exists."""

    def prune(self, log: str, upto: int) -> None:
        """Remove the entries up to that number, the oldest first: a kill leaves no gap."""

    def close(self) -> None: ...


class Entry(NamedTuple):
    """One entry of a log; ``fields`` is a JSON object."""

    number: int
    fields: Mapping[str, Any]


class StateStore:
    """The logs of one store. ``new_nonce`` gives 16 random bytes as text."""

    def __init__(self, backend: Backend, *, new_nonce: Callable[[], str]) -> None:
        self._backend = backend
        self._new_nonce = new_nonce
        self._id: str | None = None

    @property
    def shown(self) -> str:
        return self._backend.shown

    @property
    def id(self) -> str:
        """The random id, which distinguishes this store from others. Raises NotCreated."""
        if self._id is None:
            found = self.read(_IDENTITY, newest=1)
            if not found:
                raise NotCreated(
                    f"{self.shown} is not a state store.",
                    hint=MAKE_IT,
                )
            self._id = str(found[0].fields["id"])
        return self._id

    def create(self) -> None:
        """Make the store, unless it exists. Raises Refused where two writers could append the same number."""
        self._backend.create()
        if self.read(_IDENTITY, newest=1):
            return
        if not self.append(_IDENTITY, FIRST, {"id": self._new_nonce()}):
            return  # another process is making it
        if self._backend.put(_IDENTITY, FIRST, self._encoded(self._new_nonce(), {})):
            raise Refused(
                f"{self.shown} overwrites existing entries, so two operators could move one job to two clusters.",
                hint="Keep the state elsewhere: PostgreSQL, HBase, HDFS, a shared disk, S3, GCS or Azure.",
            )

    def append(self, log: str, number: int, fields: Mapping[str, Any]) -> bool:
        """Append an entry under the number after the newest that was read. False if another entry has that number.

        Raises OutcomeUnknown if the store does not say, Unreachable and Refused with nothing written.
        """
        nonce = self._new_nonce()
        unknown: OutcomeUnknown | None = None
        try:
            put = self._backend.put(log, number, self._encoded(nonce, fields))
        except OutcomeUnknown as error:
            put, unknown = False, error
        if not put and not self._is_mine(log, number, nonce, unknown):
            return False
        return not self._took_back(log, number)

    def read(self, log: str, *, newest: int) -> list[Entry]:
        """At most ``newest`` entries, the newest first."""
        return [Entry(held.number, self._decoded(log, held)) for held in self._backend.read(log, newest)]

    def prune(self, log: str, *, keep: int) -> None:
        """Remove all entries but the ``keep`` newest; ValueError if these are fewer than ``LEAST_KEPT``."""
        if keep < LEAST_KEPT:
            raise ValueError(f"keep={keep}")
        for held in self._backend.read(log, 1):
            self._backend.prune(log, held.number - keep)

    def close(self) -> None:
        self._backend.close()

    def _took_back(self, log: str, number: int) -> bool:
        # This is the usual case. A bucket takes a request for each entry, and the numbers below would read them all.
        if number > FIRST and self._backend.read_one(log, number - 1) is not None:
            return False
        numbers = [held.number for held in self._backend.read(log, LEAST_KEPT)]
        if number in numbers or len(numbers) < LEAST_KEPT:
            return False
        self._backend.remove(log, number)
        return True

    @staticmethod
    def _encoded(nonce: str, fields: Mapping[str, Any]) -> bytes:
        return json.dumps({_NONCE: nonce, **fields}, ensure_ascii=False, separators=(",", ":")).encode()

    def _is_mine(self, log: str, number: int, nonce: str, unknown: OutcomeUnknown | None) -> bool:
        """True if the number holds this writer's entry. ``unknown``: the append may still happen."""
        try:
            held = self._backend.read_one(log, number)
        except ReconcilerError as error:
            if unknown is not None:
                raise unknown from error
            raise
        if held is not None:
            return bool(self._decoded(log, held)[_NONCE] == nonce)
        if unknown is not None:
            raise unknown
        return False

    def _decoded(self, log: str, held: Held) -> Mapping[str, Any]:
        try:
            fields = json.loads(held.entry)
            if isinstance(fields, dict) and isinstance(fields.get(_NONCE), str):
                return fields
        except (ValueError, RecursionError):
            pass
        raise Refused(
            f"Entry {held.number} of {log} in {self.shown} is damaged.",
            hint="Restore the state store from a backup that is not older than the last move.",
        )


def log_name(kind: str, *parts: str) -> str:
    """The name of a log, such as ``journal/clicks/2``: letters, digits, ``_.-%`` and slashes only."""
    return "/".join((kind, *(quote(part, safe="").replace("~", "%7E") for part in parts)))


class StateSpec(NamedTuple):
    """One back-end: its module, an example of its address, its client package, and the extra that installs it.

    The module has ``open_address(address) -> Backend``, which contacts nothing.
    """

    module: str
    example: str
    client: str | None = None
    extra: str | None = None


BACKENDS: Mapping[str, StateSpec] = {
    "postgresql": StateSpec("reconciler.state.postgresql", "postgresql://HOST/DATABASE", "psycopg", "postgresql"),
    "hbase": StateSpec("reconciler.state.hbase", "hbase://HOST:PORT/TABLE", "happybase"),
    "files": StateSpec("reconciler.state.files", "files:PATH", "fsspec", "files"),
    "sqlite": StateSpec("reconciler.state.sqlite", "sqlite:///FILE"),
    "memory": StateSpec("reconciler.state.memory", "memory:NAME"),
}
"""The table of back-ends, by the scheme of their addresses. CONTRIBUTING.md has the steps to add one."""


def open_state(address: str) -> StateStore:
    """The store at ``address``, which need not exist. Nothing is contacted.

    Raises ConfigError for an address that is wrong, and for a client package that is not installed.
    """
    name = scheme_of(address) or ""
    spec = BACKENDS.get(name)
    if spec is None:
        what = f"There is no state store with the scheme {name!r}." if name else "[state] store has no scheme."
        raise ConfigError(what, hint=f"Write one of: {' · '.join(each.example for each in BACKENDS.values())}.")
    module = load_module(f"The state store {name}:", spec.module, spec.client, spec.extra)
    backend: Backend = module.open_address(address)
    return StateStore(backend, new_nonce=lambda: os.urandom(16).hex())
