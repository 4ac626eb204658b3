"""Every parser of the product, a row each: what it reads, how it may refuse, and what holds for the value read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from reconciler.config.file import load_config
from reconciler.config.identity import UNITS_PER_MS, IdentitySettings, identity_from_settings
from reconciler.config.settings import TrustSettings
from reconciler.config.stores import STORES
from reconciler.config.streams import Stream
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.core.json_fields import FieldError
from reconciler.core.question import StartAt
from reconciler.failover.sinks.files import LOG, FileSink
from reconciler.jobs.watch.metrics import ListenAddress
from reconciler.kafka.mirror import topics
from reconciler.kafka.mirror.records import UnreadableRecord, read_checkpoint, read_heartbeat, read_sync
from reconciler.places import range_manifests
from reconciler.places.checkpoint import log as checkpoint
from reconciler.places.checkpoint.log import entry_with, initial_with, offsets_text
from reconciler.places.range_manifests import TornManifest
from reconciler.places.registry import open_store
from reconciler.plan import signing
from reconciler.plan.document import StartPolicy, digest, parse_plan
from reconciler.plan.start import planned_text, why_stopped
from reconciler.ports import TopicPartition
from reconciler.spark.batches import hashed_files
from reconciler.spark.stay_checkpoint import FORMAT as NOTE_FORMAT
from reconciler.spark.stay_checkpoint import NOTE, checkpoint_at
from reconciler.state import lines as states
from reconciler.state import start
from reconciler.state.lines import dump_line, load_lines
from tests.config import configurations
from tests.golden.keys import write_key
from tests.hostile.fuzz import (
    AS_TYPED,
    GOLDENS,
    LONGEST_MESSAGE,
    NUMBERS,
    ODD_TEXTS,
    attempt,
    documents,
    lines,
    slips,
    with_field,
    words,
)
from tests.kafka.mirror.written import checkpoint_key, checkpoint_value, sync_key, sync_value, text
from tests.spark.batches.test_batches_sinks import BEGUN
from tests.spark.job.test_starting import AT_HOME

CHANGED, USAGE, UNREACHABLE, PERSON = ExitCode.CHANGED, ExitCode.USAGE, ExitCode.UNREACHABLE, ExitCode.NEEDS_PERSON
NUMBER, TEXT = (FieldError,), "surrogateescape"


def nothing_more(given: Any, found: Any) -> None:
    """It is enough that the parser gave a value."""


@dataclass(frozen=True)
class Parser:
    """``read`` gets the test's folder and one of ``inputs``; ``holds`` the input and the value read from it."""

    inputs: st.SearchStrategy[Any]
    read: Callable[[Path, Any], Any]
    codes: tuple[ExitCode, ...] = ()
    codec: tuple[type[Exception], ...] = ()
    holds: Callable[[Any, Any], None] = nothing_more
    longest: int = LONGEST_MESSAGE

    def judge(self, folder: Path, given: Any) -> bool:
        """True if ``given`` was read, False if it was refused as it may be."""
        found = attempt(lambda: self.read(folder, given), *self.codes, codec=self.codec, longest=self.longest)
        if found is not None:
            self.holds(given, found)
        return found is not None


# ---------------------------------------------------------------- plans, anchors and starts

PLANS = [json.loads(path.read_text()) for path in sorted((GOLDENS / "plan").glob("*.json"))]
EXPORTED = [json.loads(line) for line in (GOLDENS / "anchors/export.jsonl").read_text().splitlines()]
ANCHORS, STATES = [line for line in EXPORTED if "group" in line], [line for line in EXPORTED if "group" not in line]
START = json.loads(
    start.dump(
        start.Start(
            *("clicks", "a", "a:9092", 1, "memory:x", "id", {"events": Stream("events", "a")}),
            **{"offsets": {TopicPartition("events", 0): 7, TopicPartition("events", 12): 8}, "new": StartAt()},
            **{"identity": IdentitySettings(), "cluster_id": "A", "topic_ids": {"events": ("x",)}},
        )
    )
)


def summed_plan(plan: dict[str, Any]) -> dict[str, Any]:
    return with_field(plan, "sha256", digest(plan))


def plan_again(data: bytes, plan: Any) -> None:
    content = json.loads(data.decode(errors=TEXT))
    assert json.dumps(plan.to_json(), sort_keys=True) == json.dumps(content, sort_keys=True)
    assert parse_plan(plan.to_text()) == plan
    for job in plan.jobs:
        for row in job.partitions:
            why_stopped(row, StartPolicy())
        offsets = attempt(partial(planned_text, plan, [job.name]), USAGE, PERSON, longest=AS_TYPED)
        assert offsets is None or isinstance(json.loads(offsets), dict)


def anchors_again(_: bytes, found: Any) -> None:
    """The time of writing is kept only where no anchor has a time."""
    once, again = (
        [(each.group, each.key, each.stored.offset, each.stored.anchor) for each in rows]
        for rows in (found, load_lines(map(dump_line, found)))
    )
    assert once == again


def states_again(_: bytes, found: Mapping[str, Any]) -> None:
    again = states.load(line for job, read in found.items() for line in states.dump(job, read))
    assert again == {job: read for job, read in found.items() if read != states.JobLines()}


def start_again(_: bytes, found: start.Start) -> None:
    assert start.load(start.dump(found), "a start") == found
    assert json.loads(found.starting_offsets()) is not None
    assert all(key.topic.encode() and 0 <= key.partition < 2**31 for key in found.offsets)


FORMATS = {
    "plan": Parser(
        documents(PLANS, summed_plan),
        lambda _, data: parse_plan(data.decode(errors=TEXT)),
        (CHANGED,),
        holds=plan_again,
    ),
    "anchor lines": Parser(
        lines(ANCHORS),
        lambda _, data: list(load_lines(data.decode(errors="replace").splitlines(keepends=True))),
        (USAGE,),
        holds=anchors_again,
    ),
    "state lines": Parser(
        lines(STATES),
        lambda _, data: states.load(data.decode(errors="replace").splitlines(keepends=True)),
        (USAGE,),
        holds=states_again,
    ),
    "start": Parser(
        documents([START]), lambda _, data: start.load(data.decode(errors=TEXT), "a start"), (USAGE,), holds=start_again
    ),
}


# ---------------------------------------------------------------- signatures and keys

EXACT = GOLDENS / "exact"
PLAN = (EXACT / "plan.json").read_bytes()
PLAN_SHA256 = json.loads(PLAN)["sha256"]
SIGNATURE = json.loads((EXACT / "plan.json.sig").read_text())


def trusting(folder: Path) -> TrustSettings:
    if not (folder / "ada.pub.pem").exists():
        write_key(folder, "ada")
    return TrustSettings(trusted_keys=(str(folder / "ada.pub.pem"),), require_signature=True)


def verify(folder: Path, plan: bytes, signature: bytes, sha256: str = PLAN_SHA256) -> Any:
    path = folder / "plan.json"
    path.write_bytes(plan)
    signing.path_for(path).write_bytes(signature)
    return signing.check(path, plan, sha256, trusting(folder))


def only_the_signed(given: bytes, signer: Any) -> None:
    assert given == PLAN or json.loads(given) == SIGNATURE


def read_key(folder: Path, data: bytes) -> bool:
    trusting(folder)
    path = folder / "key.pem"
    path.write_bytes(data)
    for setting in (str(path), *([data.decode(errors=TEXT)] if b"\0" not in data else [])):
        attempt(partial(signing.trusted, TrustSettings(trusted_keys=(setting,))), USAGE, longest=AS_TYPED)
    for passphrase in (None, "a passphrase"):
        attempt(partial(signing.private_key, path, passphrase), USAGE)
    return True


def keys() -> list[bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write_key(Path(folder), "ben")
        return [(Path(folder) / name).read_bytes() for name in ("ben.pem", "ben.pub.pem")]


TRUST = {
    "signature": Parser(
        documents([SIGNATURE]), lambda at, data: verify(at, PLAN, data), (CHANGED,), holds=only_the_signed
    ),
    "signed plan": Parser(
        st.just(PLAN) | slips([PLAN], most=1),
        lambda at, data: verify(at, data, json.dumps(SIGNATURE).encode()),
        (CHANGED,),
        holds=only_the_signed,
    ),
    "signed plan with a sum that fits": Parser(
        slips([PLAN], most=1).filter(lambda data: data != PLAN),
        lambda at, data: verify(at, data, json.dumps(SIGNATURE).encode(), hashlib.sha256(data).hexdigest()),
        (CHANGED,),
        holds=only_the_signed,
    ),
    "key": Parser(slips([*keys(), b"x" * 64]), read_key),
}


# ---------------------------------------------------------------- where offsets are kept

RANGES = [
    {"format": "reconciler.ranges/1", "group": "clicks", "written_at_ms": 1767229200000},
    {"topic": "events", "partition": 0, "from": 4400, "until": 4514},
    {"manifest": "7.0123abcd", "written_at_ms": 1767229200000},
    {"topic": "events", "partition": 3, "until": 881, "anchor": {"offset": 880, "timestamp_ms": 5, "names": "last"}},
    {"topic": "events", "partition": 4, "deleted": True},
]
METADATA = {"batchWatermarkMs": 0, "batchTimestampMs": 1795301759566, "conf": {"spark.sql.shuffle.partitions": "1"}}
OFFSETS = {"orders": {"0": 6, "1": 7}, "pays": {"12": 4}}
ADDRESSES = [
    *(spec.example for spec in STORES.values()),
    *("sqlite:///offsets.db", "sqlite:////srv/a%20b.db", "sqlite://", "memory:", "memory:a", "kafka-group:"),
    *("hbase://127.0.0.1:1/offsets?layout=cloudera&timeout=5", "hbase://[::1]/t?layout=cloudera"),
    *("hbase://h/cdap_system:log.meta?layout=cdap-logsaver&prefix=100",),
    *("hbase://h/t?layout=cdap-metrics&of_group=g",),
    *("hbase://h/t?layout=cdap-flowlet&id_of=json:$.id&column=d:c",),
    *("hbase://h:99999/t?layout=cloudera&transport=framed",),
    *("zookeeper://h1:2181,h2:2181/kafka?layout=consumers", "zookeeper://u:p@h/a?layout=single&of_group=g&number=first"),
    *("postgresql://u:hunter2@h:5432,i/db?sslmode=require&timeout=5", "postgres:///db?host=/tmp&schema=s"),
    *("postgresql://h/db?table=s.t&topic=a&partition=b&offset=c&number=last&newest_by=e", "checkpoint:/srv/clicks"),
    *("files:/srv/offsets?keep=2",),
    *("delta:/srv/t?layout=commit&number=next&lists=all&property=x&field=a.b&walk=9", "delta:s3://b/t?number=last"),
    *("delta:/srv/t?layout=txn&number=last&app_id={group}-{topic}-{partition}&partitions=12",),
    *("delta:/srv/t?layout=columns&number=last&topic=t&partition=p&offset=o&group=g",),
    *("iceberg:lab/db.t?layout=summary&number=next&property=x&branch=b&of_group=g", "iceberg:/srv/t?layout=columns"),
    *("checkpoint:file:///srv/clicks?position=end", "files:webhdfs://127.0.0.1:1/offsets?walk=7", "files:memory://x"),
    *("x:y",),
]  # fmt: skip


def summed_ranges(data: bytes) -> bytes:
    body = data if data.endswith(b"\n") else data + b"\n"
    end = {"end": body.count(b"\n"), "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(end).encode() + b"\n"


def manifest_again(_: bytes, found: Any) -> None:
    text = range_manifests.dump(found.group, found.ranges, written_at_ms=found.written_at_ms, snapshot=found.snapshot)
    again = range_manifests.load(text)
    assert (again.group, again.snapshot) == (found.group, found.snapshot)
    assert {(each.key, each.text, each.origin) for each in again.ranges} == {
        (each.key, each.text, each.origin) for each in found.ranges
    }


def offsets_again(data: bytes, entry: Any) -> None:
    """Other offsets can be put into an entry that was read."""
    kafka = {each.name: each.kafka for each in entry.sources if each.kafka}
    moved = {name: dict.fromkeys(of, 5) for name, of in kafka.items()}
    edited = checkpoint.parse_offsets(3, entry_with(3, data, {name: offsets_text(of) for name, of in moved.items()}))
    assert {each.name: each.kafka for each in edited.sources if each.kafka} == moved


def initial_again(data: bytes, began: Any) -> None:
    if began.kafka and min(began.kafka.values()) >= 0:
        again = initial_with("0", data, offsets_text(began.kafka))
        assert checkpoint.parse_initial("0", again).kafka == began.kafka


def open_address(folder: Path, address: str) -> Any:
    if "python:" in address:
        return None
    store = open_store(address, kafka_client={"bootstrap.servers": "127.0.0.1:1"})
    store.close()
    return store


def shows_no_secret(address: str, store: Any) -> None:
    assert "hunter2" not in store.address


def read_file_sink(folder: Path, given: tuple[str, bytes]) -> Any:
    name, data = given
    log = folder / LOG
    log.mkdir(exist_ok=True)
    (folder / "part-0.parquet").write_text("PAR1")
    (log / "9.compact").write_bytes(b"v1\n" + data)
    (log / name).write_bytes(b"v1\n" + data)
    try:
        return FileSink(str(folder)).last_taken(None)
    finally:
        (log / name).unlink()


def newest_batch(given: tuple[str, bytes], taken: Any) -> None:
    assert taken.batch == max(9, int(given[0]) if given[0].isdecimal() else 0)


def read_note(folder: Path, data: bytes) -> str:
    base = str(folder / "base")
    checkpoint_at(base, AT_HOME)
    note = folder / "base" / NOTE
    whole = note.read_bytes()
    note.write_bytes(data)
    try:
        return checkpoint_at(base, AT_HOME)
    finally:
        note.write_bytes(whole)


SINK_FILES = [
    {"path": uri, "size": 7, "isDir": False, "action": "add"}
    for uri in ("file:///srv/part-0.parquet", "file:///[x/a.parquet", "file://[x.parquet", "file:/a%00b.parquet")
]
NOTE_TEXT = {"format": NOTE_FORMAT, "store": AT_HOME.store_id, "job": "clicks", "stay": 1, "folder": "base", "id": "0"}
MANIFESTS, VERSIONS = lines(RANGES), st.sampled_from([b"v1\n", b"v2\n", b""])
OTHER_FILES = documents([{"id": "86b8d69f"}, {"nextBatchWatermarkMs": 0}, OFFSETS])
WHOLE_OR_NOT = st.tuples(st.sampled_from([b"", b"v1\n"]), OTHER_FILES).map(b"".join)
PLACES = {
    "range manifest": Parser(
        MANIFESTS | MANIFESTS.map(summed_ranges),
        lambda _, data: range_manifests.load(data),
        codec=(FieldError, TornManifest),
        holds=manifest_again,
    ),
    "offset log": Parser(
        st.tuples(VERSIONS, lines([METADATA, OFFSETS, {"logOffset": 0}])).map(b"".join),
        lambda _, data: checkpoint.parse_offsets(3, data),
        codec=NUMBER,
        holds=offsets_again,
    ),
    "commit log": Parser(WHOLE_OR_NOT, lambda _, data: checkpoint.check_commit(data) is None, codec=NUMBER),
    "query's id": Parser(WHOLE_OR_NOT, lambda _, data: checkpoint.parse_query_id(data), codec=NUMBER),
    "initial offsets": Parser(
        OTHER_FILES.map(lambda data: b"\0v1\n" + data) | WHOLE_OR_NOT,
        lambda _, data: checkpoint.parse_initial("0", data),
        codec=NUMBER,
        holds=initial_again,
    ),
    "address": Parser(words(ADDRESSES), open_address, (USAGE,), holds=shows_no_secret, longest=AS_TYPED),
    "file sink": Parser(
        st.tuples(st.sampled_from(["10", "12", "9" * 19, "8", "x", ".10.crc"]), lines(SINK_FILES)),
        read_file_sink,
        (UNREACHABLE, USAGE),
        holds=newest_batch,
    ),
    "stay's note": Parser(documents([NOTE_TEXT]), read_note, (USAGE, PERSON)),
    "begun batch": Parser(
        documents([json.loads(hashed_files.dumps(BEGUN))]),
        lambda _, data: hashed_files.loads(data.decode(errors="replace"), "a record"),
        (UNREACHABLE,),
    ),
}


# ---------------------------------------------------------------- what a person or a mirror writes

SPECS = [
    "record",
    "none",
    "key",
    "header:id",
    "header:at",
    "json:$.id",
    "json:$.meta.at",
    "json:$.items[0]",
    "json:$.ts",
]
TIMES, IDS = [spec for spec in SPECS if spec not in ("none", "key")], [spec for spec in SPECS if spec != "record"]
FULL = f'{configurations.FULL}\n[watch]\nevery = "60s"\n[metrics]\npushgateway = "http://me:${{SECRET}}@h:9091"\n'
ENVIRONMENT: Mapping[str, str] = {"SECRET": "correct-horse", "PLACE": "/srv"}
SYNTAX = [
    *('"', "'", "[", "]", "[[", "]]", "{", "}", "=", ".", ",", "\n", "#", '"""', "\\u0000", "\\", "\x00", "\ufeff"),
    *("${", "${SECRET}", "file:", "file:/\\u0000", "file:/dev/null", "://", "u:p@", "?password=", "python:os:system"),
    *("true", "nan", "-inf", "1e400", "9" * 30, "1" * 5000, "2026-01-31", "00:00:00", "0x", "jobs", "store", "policy"),
    *("identity", "client", "topics", "names", "json:$", "$.a[0]", "header:", "5s", "9" * 17 + "d", "\u202e"),
]  # fmt: skip
VALUES = st.recursive(
    st.sampled_from(["true", "0", "-1", str(2**63), "1.5", "nan", "2026-01-31", "''", "'x'", "'5s'", "'${SECRET}'"]),
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(inner, max_size=2).map(
            lambda items: "{" + ", ".join(f"k{number} = {item}" for number, item in enumerate(items)) + "}"
        )
    ),
    max_leaves=4,
)


def load_settings(folder: Path, data: bytes) -> Any:
    path = folder / "reconciler.toml"
    path.write_bytes(data)
    found, refused = None, None
    try:
        found = load_config(path, ENVIRONMENT)
    except ConfigError as error:
        refused = error
    assert "correct-horse" not in str(refused)
    if refused is not None:
        raise refused
    return found


def with_slips(drawn: list[tuple[int, int, str]]) -> bytes:
    whole = FULL
    for place, left_out, word in drawn:
        whole = whole[:place] + word + whole[place + left_out :]
    return whole.encode("utf-8", "surrogatepass")


def with_value(drawn: tuple[int, str]) -> bytes:
    number, value = drawn
    rows = FULL.splitlines()
    rows[number] = f"{rows[number].partition(' = ')[0]} = {value}"
    return "\n".join(rows).encode()


SETTING_LINES = [number for number, line in enumerate(FULL.splitlines()) if " = " in line]
CONFIGS = (
    st.lists(st.tuples(st.integers(0, len(FULL)), st.integers(0, 20), st.sampled_from(SYNTAX)), max_size=4).map(
        with_slips
    )
    | st.tuples(st.sampled_from(SETTING_LINES), VALUES).map(with_value)
    | slips([FULL.encode()], most=5)
    | st.lists(st.sampled_from(SYNTAX), max_size=40).map(lambda found: " ".join(found).encode())
)


def identities() -> st.SearchStrategy[Any]:
    specs = slips([spec.encode() for spec in SPECS]).map(lambda data: data.decode(errors="replace"))
    other = st.sampled_from(["opaque", "increasing", *UNITS_PER_MS]) | ODD_TEXTS
    times, ids = (st.sampled_from(known) | specs for known in (TIMES, IDS))
    return st.tuples(times, ids, st.just("opaque") | st.just("increasing") | other, st.just("ms") | other)


EDGES = [number for number in NUMBERS if -(2**63) <= number < 2**63]
KEYS = [sync_key(), sync_key("x" * 249, 2**31 - 1), checkpoint_key("readers"), text("a") + text("b"), b"\xff\xff"]
PAIRS = [
    *(sync_value(number, EDGES[-number % len(EDGES)]) for number in EDGES),
    *(checkpoint_value(number, 5) for number in EDGES),
    *(checkpoint_value(5, 5, version=1), b"\0\0" + (1_700_000_000_000).to_bytes(8, "big")),
]


@dataclass(frozen=True, slots=True)
class Made:
    """A record of a mirror's own topic, or of a job's."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = 0
    timestamp_ms: int | None = 1
    append_time: bool = False


MIRRORS = st.one_of(
    st.just(Made(sync_key(), sync_value(7, 8))),
    st.just(Made(checkpoint_key("readers"), checkpoint_value(5, 5))),
    st.just(Made(text("a") + text("b"), PAIRS[-1])),
    st.sampled_from(EDGES).map(lambda number: Made(sync_key(), sync_value(number, number))),
    st.builds(Made, st.none() | slips(KEYS), st.none() | slips(PAIRS)),
)
PARTS = ["a", "b.c", "events", "heartbeats", "checkpoints", "internal", "mm2-offset-syncs", ".", "_", "-", ".."]
NAMES = st.lists(st.sampled_from(PARTS) | st.text("abAB09._-", max_size=249), max_size=8).map(
    lambda found: "".join(found)[:249]
)


def no_negative_number(_: Made, pair: Any) -> None:
    assert min(pair[1].upstream, pair[1].downstream, pair[0].partition) >= 0


def known_mirrors(names: list[str], found: Any) -> None:
    for mirror in found:
        assert mirror.topics
        assert not set(mirror.topics) & set(filter(topics.is_internal, names))
        assert all(mirror.source_of(topic) in topic for topic in mirror.topics)


def a_port(_: str, address: ListenAddress) -> None:
    assert 0 <= address.port < 65_536


WRITTEN = {
    "configuration": Parser(CONFIGS, load_settings, (USAGE,), longest=AS_TYPED),
    "identity": Parser(
        identities(), lambda _, drawn: identity_from_settings(IdentitySettings(*drawn)), (USAGE,), longest=AS_TYPED
    ),
    "address to listen on": Parser(
        words(["127.0.0.1:9464", "[::1]:9464", ":0", "localhost:1", "[fe80::1%eth0]:1", "h:٣"]),
        lambda _, given: ListenAddress.parse(given),
        (USAGE,),
        holds=a_port,
        longest=AS_TYPED,
    ),
    "offset sync": Parser(
        MIRRORS, lambda _, record: read_sync(record), codec=(UnreadableRecord,), holds=no_negative_number
    ),
    "mirror's checkpoint": Parser(
        MIRRORS, lambda _, record: read_checkpoint(record), codec=(UnreadableRecord,), holds=no_negative_number
    ),
    "heartbeat": Parser(MIRRORS, lambda _, record: read_heartbeat(record), codec=(UnreadableRecord,)),
    "topics' names": Parser(st.lists(NAMES, max_size=6), lambda _, names: topics.mirrors(names), holds=known_mirrors),
}

PARSERS = {**FORMATS, **TRUST, **PLACES, **WRITTEN}
