"""What every state store promises (S1 to S5), over each system that can keep state."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

from reconciler.core.errors import ConfigError, NotCreated, OutcomeUnknown, Refused, Unreachable
from reconciler.state.memory import MemoryState
from reconciler.state.store import BACKENDS, LEAST_KEPT, StateStore, log_name, open_state
from tests import ROOT
from tests.buckets import WHERE, new_bucket

LOG = log_name("location", "clicks")
Make = Callable[[pytest.FixtureRequest, Path, str], str]
HERE: dict[str, Make] = {
    "memory": lambda _, __, name: f"memory:{name}",
    "sqlite": lambda _, folder, __: f"sqlite:///{folder}/state.db",
    "files-local": lambda _, folder, __: f"files:{folder}/state",
    "files-memory": lambda _, __, name: f"files:memory://{name}/state",
}
"""The address of a new store, from a folder and a name of its own; by names that begin with the scheme."""
ON_SERVERS: dict[str, Make] = {
    "files-hdfs": lambda request, _, name: f"files:{request.getfixturevalue('hdfs').url(f'/{name}')}",
    **{f"files-{scheme}": lambda _, __, ___, scheme=scheme: f"files:{new_bucket(scheme)}/state" for scheme in WHERE},
    "postgresql": lambda request, _, __: f"{request.getfixturevalue('database')}&timeout=60",
    "hbase": lambda request, _, name: f"hbase://{request.getfixturevalue('hbase').address}/{name}?timeout=60",
}


@pytest.fixture(params=[*HERE, *(pytest.param(kind, marks=pytest.mark.system) for kind in ON_SERVERS)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {**HERE, **ON_SERVERS}[request.param](request, tmp_path, f"st{uuid.uuid4().hex[:12]}")


@pytest.fixture
def store(address: str) -> Iterator[StateStore]:
    opened = open_state(address)
    opened.create()
    yield opened
    opened.close()


@pytest.mark.parametrize("scheme", BACKENDS)
def test_the_suite_and_the_reference_have_every_scheme(scheme: str) -> None:
    assert scheme in {kind.partition("-")[0] for kind in (*HERE, *ON_SERVERS)}
    text = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith("| `store` | text"))
    assert f"`{scheme}:" in row or scheme == "memory", "docs/reference/configuration.md: [state] store"


def test_entries_are_read_newest_first_and_apart_by_log(store: StateStore, address: str) -> None:
    logs = [
        LOG,
        log_name("location", "clicks/2"),
        log_name("journal", "clicks", "2"),
        log_name("location", "klïcks~ %"),
    ]
    for log in logs:
        assert store.read(log, newest=5) == []
        for number in (1, 2, 3):
            assert store.append(log, number, {"of": log, "number": number})
    other = open_state(address)
    for log in logs:
        found = other.read(log, newest=2)
        assert [entry.number for entry in found] == [3, 2]
        assert [entry.fields["of"] for entry in found] == [log, log]
    other.close()


def test_a_number_that_is_taken_is_refused(store: StateStore) -> None:
    assert store.append(LOG, 1, {"by": "first"})
    assert not store.append(LOG, 1, {"by": "second"})
    assert [entry.fields["by"] for entry in store.read(LOG, newest=5)] == ["first"]


def test_of_many_writers_of_one_number_one_succeeds(store: StateStore, address: str) -> None:
    def write(writer: int) -> list[bool]:
        own = open_state(address)
        try:
            return [own.append(LOG, number, {"by": writer}) for number in range(1, 6)]
        finally:
            own.close()

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(write, range(6)))
    assert [sum(each) for each in zip(*results, strict=True)] == [1] * 5
    winners = {number: results.index(next(r for r in results if r[number - 1])) for number in range(1, 6)}
    assert {entry.number: entry.fields["by"] for entry in store.read(LOG, newest=9)} == winners


def test_pruning_keeps_the_newest(store: StateStore) -> None:
    for number in range(1, LEAST_KEPT + 6):
        assert store.append(LOG, number, {})
    store.prune(LOG, keep=LEAST_KEPT)
    numbers = [entry.number for entry in store.read(LOG, newest=99)]
    assert numbers == list(range(LEAST_KEPT + 5, 5, -1))
    assert store.append(LOG, LEAST_KEPT + 6, {})
    with pytest.raises(ValueError, match="keep=1"):
        store.prune(LOG, keep=1)


def test_a_writer_of_a_pruned_number_takes_its_entry_back(store: StateStore) -> None:
    for number in range(1, LEAST_KEPT + 10):
        store.append(LOG, number, {})
    store.prune(LOG, keep=LEAST_KEPT)
    assert not store.append(LOG, 3, {"by": "a slow writer"})
    assert not any(entry.fields.get("by") for entry in store.read(LOG, newest=99))


def test_a_store_that_was_never_made_says_so_and_is_not_made_by_use(address: str) -> None:
    if address.startswith("memory:"):
        pytest.skip("memory is empty at first")
    store = open_state(address)
    for use in (lambda: store.id, lambda: store.append(LOG, 1, {}), lambda: store.read(LOG, newest=1)):
        with pytest.raises(NotCreated):
            use()
    store.create()
    assert store.read(LOG, newest=1) == []
    store.close()


def test_a_store_keeps_its_id(store: StateStore, address: str) -> None:
    again = open_state(address)
    again.create()
    assert again.id == store.id
    assert len(store.id) == 32
    again.close()


# ---------------------------------------------------------------- back-ends that fail


class Failing(MemoryState):
    """``before`` and ``after``: the put of so many calls from now on fails before or after it has written."""

    def __init__(self, *, before: int = 0, after: int = 0, silent: bool = False) -> None:
        super().__init__("memory:failing")
        self.before, self.after, self.silent = before, after, silent

    def put(self, log: str, number: int, entry: bytes) -> bool:
        self.before -= 1
        self.after -= 1
        if self.before == 0:
            raise OutcomeUnknown("no answer")
        done = super().put(log, number, entry)
        if self.after == 0:
            raise OutcomeUnknown("no answer")
        return done

    def read_one(self, log: str, number: int):  # type: ignore[no-untyped-def]
        if self.silent:
            raise Unreachable("away")
        return super().read_one(log, number)


def state_on(backend: MemoryState) -> StateStore:
    nonces = count()
    return StateStore(backend, new_nonce=lambda: f"nonce {next(nonces)}")


def test_an_append_reads_one_entry_back_however_long_the_log_is() -> None:
    """In a bucket each entry that is read is a request, and a running job appends once a second."""

    class Counted(MemoryState):
        entries = 0

        def read(self, log: str, newest: int):  # type: ignore[no-untyped-def]
            found = super().read(log, newest)
            self.entries += len(found)
            return found

    backend = Counted("memory:counted")
    store = state_on(backend)
    assert all(store.append(LOG, number, {}) for number in range(1, LEAST_KEPT + 6))
    assert backend.entries <= 1


def test_a_lost_reply_is_decided_by_reading_the_number_back() -> None:
    store = state_on(Failing(after=1))
    assert store.append(LOG, 1, {})


def test_a_lost_reply_of_a_number_that_another_writer_has_is_a_refusal() -> None:
    backend = Failing(after=2)
    assert state_on(backend).append(LOG, 1, {"by": "other"})
    assert not StateStore(backend, new_nonce=lambda: "mine").append(LOG, 1, {})


def test_a_request_that_was_lost_may_still_come() -> None:
    with pytest.raises(OutcomeUnknown):
        state_on(Failing(before=1)).append(LOG, 1, {})


def test_an_outcome_that_cannot_be_read_back_is_unknown() -> None:
    with pytest.raises(OutcomeUnknown):
        state_on(Failing(after=1, silent=True)).append(LOG, 1, {})
    backend = Failing(silent=True)
    assert state_on(backend).append(LOG, 1, {})
    with pytest.raises(Unreachable):  # the number is taken, perhaps by an earlier try of this very append
        StateStore(backend, new_nonce=lambda: "mine").append(LOG, 1, {})


def test_a_place_in_which_no_state_store_was_made_is_none() -> None:
    with pytest.raises(NotCreated, match="is not a state store"):
        _ = state_on(MemoryState("memory:empty")).id


def test_a_request_that_the_client_repeated_counts_once() -> None:
    class Twice(MemoryState):
        def put(self, log: str, number: int, entry: bytes) -> bool:
            super().put(log, number, entry)
            return super().put(log, number, entry) and False

    assert state_on(Twice("memory:twice")).append(LOG, 1, {})


def test_a_system_that_ignores_exclusive_writes_is_refused() -> None:
    class Replaces(MemoryState):
        def put(self, log: str, number: int, entry: bytes) -> bool:
            self._logs.setdefault(log, {})[number] = entry
            return True

    with pytest.raises(Refused, match="overwrites existing entries"):
        state_on(Replaces("memory:replaces")).create()


def test_a_folder_without_exclusive_files_is_refused() -> None:
    store = open_state("files:hdfs://nowhere/state")
    with pytest.raises(Refused, match="both succeed"):
        store.create()


@pytest.mark.system
@pytest.mark.parametrize("scheme", WHERE)
def test_a_bucket_is_not_made(scheme: str) -> None:
    """Its name may be misspelt, and in S3 anybody's."""
    store = open_state(f"files:{new_bucket(scheme)}-other/state")
    with pytest.raises(Refused, match=r"the bucket of .*-other/state does not exist"):
        store.create()


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    store = open_state(f"files:{tmp_path}/state")
    store.create()
    store.append(LOG, 1, {})
    (file,) = (tmp_path / "state" / LOG).iterdir()
    file.write_text("{")
    with pytest.raises(Refused, match="Entry 1 of location/clicks"):
        store.read(LOG, newest=1)


WRONG = (
    *("", "clicks.db", "mysql://host/db", "kafka-topic:state", "files:", "sqlite:///"),
    "postgresql://h/d?table=t&topic=a&partition=b&offset=c",
    *("hbase://host:9090/", "hbase://host:x/table", "hbase://host/table?layout=cloudera"),
)


@pytest.mark.parametrize("address", WRONG)
def test_an_address_that_is_wrong_says_how_to_write_it(address: str) -> None:
    with pytest.raises(ConfigError) as raised:
        open_state(address)
    assert raised.value.hint


def test_a_damaged_file_is_said_to_be_the_state_store(tmp_path: Path) -> None:
    """Anchors, which an offset store may be filled from again, say nothing of where jobs live."""
    path = tmp_path / "state.db"
    store = open_state(f"sqlite:///{path}")
    store.create()
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(Refused, match=r"The state store .* is damaged") as refused:
        _ = open_state(f"sqlite:///{path}").id
    assert "not older than the last move" in str(refused.value.hint)
