"""``config check``: all that is wrong with a configuration, and everything it names tried."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.cli.main import main
from reconciler.config.file import load_config, read_config
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, ExitCode, NotRead, Refused, Unreachable
from reconciler.core.probes import Withheld
from reconciler.places.memory import MemoryStore
from reconciler.places.registry import open_store
from reconciler.ports import Change, LogReader, TopicPartition
from reconciler.preflight import check
from reconciler.preflight.stores import Level, Trials, World, abilities
from tests.config import configurations
from tests.memory_log import MemoryLog
from tests.starting import with_state

LEAST = configurations.LEAST.replace(configurations.STORE, "STORE")
IN_FRONT = LEAST.index("[[jobs]]")


def with_section(text: str) -> str:
    return f"{LEAST[:IN_FRONT]}{text}\n{LEAST[IN_FRONT:]}"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(f"config-check-{uuid.uuid4().hex}")


@pytest.fixture
def write(tmp_path: Path, store: MemoryStore) -> Callable[[str], Path]:
    def to_file(text: str) -> Path:
        path = tmp_path / "reconciler.toml"
        path.write_text(text.replace("STORE", store.address).replace("FOLDER", str(tmp_path)))
        path.chmod(0o600)
        return path

    return to_file


# ---------------------------------------------------------------- all problems


def test_all_faults_of_a_file_are_listed_at_once(write: Callable[[str], Path]) -> None:
    path = write(
        LEAST.replace("[topics]", "").replace('"b:9092"', "9092").replace('group = "readers"', 'gruop = "readers"')
        + '[jobs.identity]\nid = "hdr:x"\n[search]\nscan_records = 0\nmax_disordr = "1s"\n'
        + '[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "${NOT_SET_ANYWHERE}"\ntopics = []\noffsets = "memory:x"\n'
    )
    found = read_config(path)
    assert isinstance(found, list)
    said = [error.message.removeprefix(f"{path}: ") for error in found]
    for words in (
        "${NOT_SET_ANYWHERE} is not set in the environment",
        "[clusters.b] bootstrap_servers must be text in quotes, not 9092",
        "[search] scan_records = 0 must be at least 1",
        "[search] max_disordr is not a known key",
        "[jobs clicks] gruop is not a known key",
        'id = "hdr:x" is not known',
        "[jobs clicks] topics must be a list of different topic names",
        'Two jobs are named "clicks"',
    ):
        assert sum(words in each for each in said) == 1, (words, said)
    assert len(said) <= 12, "a repeated fault confuses"


def test_a_fault_brings_no_others_with_it(write: Callable[[str], Path]) -> None:
    tables = ("clusters", "topics", "state", "search", "policy", "trust", "watch", "metrics")
    found = read_config(write("jobs = 1\n" + "".join(f"{name} = 1\n" for name in tables)))
    assert isinstance(found, list)
    assert sorted(each.message.partition("[")[2] for each in found) == sorted(
        [*(f"{name}] must be a table, not 1." for name in tables), "jobs] must be a list, not 1."]
    )


def test_a_secret_in_plain_text_is_in_no_other_fault(write: Callable[[str], Path]) -> None:
    job = '[[jobs]]\nhome = "a"\nname = "token=hush"\ngroup = "g"\ntopics = ["token=hush", "token=hush"]\noffsets = "x://u:hush@h"\n'
    found = read_config(write(with_section('[policy]\nnew = "password=hush"\npython = "os"') + job + 'zzz = "hush"'))
    assert isinstance(found, list)
    assert sum("holds a secret in plain text" in each.message for each in found) == 4
    assert [each.message.partition("[")[2] for each in found[4:]] == [
        "policy] python must be a list, not 'os'.",
        "jobs 2] zzz is not a known key.",
    ]
    assert "hush" not in "".join(map(str, found))


# ---------------------------------------------------------------- tried


class Tries(Trials):
    """Results of a check of a world in memory, by level."""

    def messages(self, level: Level, subject: str = "") -> list[str]:
        return [each.message for each in self.found if each.level is level and each.subject.startswith(subject)]


def unreachable(*_: object, **__: object) -> LogReader:
    raise Unreachable("No answer.", hint="Look at it.")


@pytest.fixture
def look(write: Callable[[str], Path]) -> Callable[..., Tries]:
    """Try a configuration with a destination (and a source) in memory."""

    def at(
        text: str, destination: LogReader | None, source: LogReader | None = None, topics: tuple[str, ...] = ()
    ) -> Tries:
        config = load_config(write(text))

        def reader(client: Mapping[str, str], whose: str) -> LogReader:
            found = destination if whose == check.DESTINATION else source
            return unreachable() if found is None else found

        world = World(reader, open_store, lambda client: topics)
        tries = Tries()
        check.connections(config, config.jobs, abilities(config, config.jobs, world, tries), world, tries)
        return tries

    return at


@pytest.fixture
def destination() -> MemoryLog:
    log = MemoryLog("b", {"a.events": 2})
    log.partition("a.events", 0).append(1_700_000_000_000, b"k", b"v")
    return log


def save(store: MemoryStore, topic: str, **rows: StoredOffset) -> None:
    changes = [Change(TopicPartition(topic, int(name[1:])), None, stored) for name, stored in rows.items()]
    assert not store.write("readers", changes, reason="test", now_ms=1).conflicts


def anchored(cluster: str = "a") -> StoredOffset:
    return StoredOffset(8, Anchor(7, 1_700_000_000_000, cluster_id=cluster))


def test_working_parts_are_reported_with_counts(
    look: Callable[..., Tries], destination: MemoryLog, store: MemoryStore
) -> None:
    save(store, "events", p0=anchored(), p1=anchored())
    before = store.read("readers")
    found = look(LEAST, destination)
    assert store.read("readers") == before
    assert found.exit_code is ExitCode.OK
    assert found.messages(Level.FAIL) == found.messages(Level.WARN) == []
    assert found.messages(Level.OK, "destination") == ["answers; it is cluster b"]
    assert found.messages(Level.OK, "topic a.events") == ["2 partitions, 1 offsets; it may be read"]
    (rows,) = found.messages(Level.OK, "job clicks")
    assert 'group "readers": 2 stored offsets (2 of events), all with an anchor' in rows
    assert rows.endswith("A number is taken for the next offset to read")


def test_records_that_take_more_than_the_limits_are_a_warning_and_not_called_readable(
    look: Callable[..., Tries], destination: MemoryLog, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, "events", p0=anchored(), p1=anchored())
    monkeypatch.setattr(MemoryLog, "read", lambda self, requests: [Withheld(NotRead("Too large.")) for _ in requests])
    found = look(LEAST, destination)
    assert found.exit_code is ExitCode.OK
    assert found.messages(Level.WARN, "topic a.events") == ["Too large."]
    assert found.messages(Level.OK, "topic a.events") == ["2 partitions, 1 offsets"]


WITH_SOURCE = LEAST.replace("[clusters.a]", '[clusters.a]\nbootstrap_servers = "a:9092"')
HERE = {"a.events": 2}
MINE = {"p0": anchored()}
SAME_ID = "It reports the cluster id of the destination (b)"
NOT_HERE = 'The destination has no topic "a.events", or this user may not describe it. It has '


@pytest.mark.parametrize(
    ("text", "stored", "topics", "source", "code", "problem"),
    [
        (LEAST, {**MINE, "p1": StoredOffset(8)}, HERE, {}, 0, "1 stored offset has no anchor: events-1."),
        (LEAST, {}, HERE, {}, 0, 'STORE, group "readers": there is no stored offset for a.events, events.'),
        (LEAST, MINE, {"z.events": 1}, {}, 2, f"{NOT_HERE}z.events: correct the job's topics or home, or [topics]"),
        (LEAST, MINE, {"events.replica": 1}, {}, 2, f"{NOT_HERE}events.replica: "),
        (LEAST, {**MINE, "p5": anchored()}, HERE, {}, 0, "events: 2 partitions stored, and 2 there, without"),
        (WITH_SOURCE, MINE, HERE, {"events": 1, **HERE}, 2, f"{SAME_ID}, and the same ids of topics."),
        (WITH_SOURCE, MINE, HERE, {"events": 1}, 0, f"{SAME_ID}: only topic ids tell the two apart."),
    ],
)
def test_a_problem_is_said_alone_with_its_exit_code(
    look: Callable[..., Tries],
    store: MemoryStore,
    text: str,
    stored: dict[str, StoredOffset],
    topics: dict[str, int],
    source: dict[str, int],
    code: int,
    problem: str,
) -> None:
    save(store, "events", **stored)
    log = MemoryLog("b", topics)
    found = look(text, log, MemoryLog("b", source), topics=(*topics, "others"))
    (only,) = [f"{each.message} {each.next_step}" for each in found.found if each.level is not Level.OK]
    assert found.exit_code == code
    assert only.startswith(problem.replace("STORE", store.address))
    assert 'for example policy = "{topic}.replica"' in only or "events.replica" not in topics


def test_a_destination_that_the_offsets_come_from_is_a_failure(
    look: Callable[..., Tries], destination: MemoryLog, store: MemoryStore
) -> None:
    save(store, "events", p0=anchored("b"))
    destination.delete("a.events")
    found = look(LEAST, destination)
    assert found.exit_code is ExitCode.USAGE
    assert found.messages(Level.FAIL, "job clicks") == [
        "The destination lacks its topics, and has the cluster id of its anchors (b)."
    ]


def test_what_the_mirror_synced_needs_no_anchor_where_the_jobs_own_row_has_one(
    look: Callable[..., Tries], destination: MemoryLog, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, "events", p0=anchored())
    save(store, "a.events", p0=StoredOffset(3), p1=StoredOffset(3))
    assert look(LEAST, destination).messages(Level.WARN) == ["2 stored offsets have no anchor: a.events-0, a.events-1."]
    able = replace(store.capabilities, translated_by_mirror=True)
    monkeypatch.setattr(MemoryStore, "capabilities", able)
    found = look(LEAST, destination)
    assert found.messages(Level.WARN) == ["1 stored offset has no anchor: a.events-1."]
    assert "1 with an anchor, 1 synced by the mirror" in found.messages(Level.OK, "job clicks")[0]


def test_a_topic_of_which_a_job_has_stored_nothing_is_told_of(
    look: Callable[..., Tries], destination: MemoryLog, store: MemoryStore
) -> None:
    """``check`` and the hook stop there, whatever is stored of the job's other topics."""
    save(store, "events", p0=anchored())
    destination.create("a.orders", 1)
    both = LEAST.replace('["events"]', '["events", "orders"]')
    (said,) = look(both, destination).messages(Level.WARN, "job clicks")
    assert said == f'{store.address}, group "readers": there is no stored offset for a.orders, orders.'
    new = both.replace('["events", "orders"]', '["events", "orders"]\nnew = "earliest"')
    assert not look(new, destination).messages(Level.WARN, "job clicks")


def test_a_topic_that_the_job_does_not_list_is_the_configurations_fault(
    look: Callable[..., Tries], destination: MemoryLog, store: MemoryStore
) -> None:
    save(store, "events", p0=anchored())
    save(store, "orders", p0=anchored(), p1=anchored())
    found = look(LEAST, destination)
    assert found.exit_code is ExitCode.USAGE
    assert found.messages(Level.FAIL, "job clicks") == [
        'The job does not list all of its topics: the store has 2 offsets of "orders".'
    ]
    ignoring = look(LEAST.replace('["events"]', '["events"]\nignore_topics = ["orders"]'), destination)
    assert ignoring.exit_code is ExitCode.OK
    assert 'has 2 offsets of "orders", which the job ignores' in ignoring.messages(Level.OK, "job clicks")[1]


def test_a_misspelt_topic_is_told_with_the_names_like_it(look: Callable[..., Tries], store: MemoryStore) -> None:
    """At the destination and at the source."""
    save(store, "events", p0=anchored())
    there = ("a.evnets", "evnets", "orders", "__consumer_offsets")
    text = LEAST.replace("[clusters.a]", '[clusters.a]\nbootstrap_servers = "a:1"')
    found = look(text, MemoryLog("b", {"a.evnets": 1}), MemoryLog("a", {"evnets": 1}), topics=there)
    steps = [each.next_step for each in found.found if each.subject in ("topic a.events", "topic events")]
    assert steps == [
        "It has a.evnets, evnets: correct the job's topics or home, or [topics].",
        "It has a.evnets, evnets: correct the job's topics.",
    ]


def test_everything_else_is_tried_where_the_destination_is_silent(
    look: Callable[..., Tries], store: MemoryStore
) -> None:
    save(store, "events", p0=anchored())
    found = look(LEAST, None)
    assert found.exit_code is ExitCode.UNREACHABLE
    assert found.messages(Level.FAIL) == ["No answer."]
    assert len(found.messages(Level.OK, "job clicks")) == 1


def test_a_silent_source_is_a_warning(
    look: Callable[..., Tries], destination: MemoryLog, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(store, "events", p0=anchored())
    text = WITH_SOURCE
    silent = MemoryLog("a", {})
    monkeypatch.setattr(silent, "describe", unreachable)
    found = look(text, destination, silent)
    assert found.exit_code is ExitCode.OK
    assert found.messages(Level.WARN, "source") == [
        "No answer.",
        "only track, audit and jobs that start there need it; everything else works without.",
    ]
    elsewhere = look(text, destination, MemoryLog("a", {"others": 1}))
    assert elsewhere.exit_code is ExitCode.OK
    assert elsewhere.messages(Level.WARN) == ["The source has no such topic."]
    both = '[state]\nstore = "memory:both"\n' + text.replace("[[jobs]]\n", '[[jobs]]\norigins = ["a", "b"]\n', 1)
    assert "The source does not have it yet." in look(both, destination, MemoryLog("a", {"events": 1})).messages(
        Level.WARN
    )
    fine = look(text, destination, MemoryLog("a", {"events": 1}))
    assert fine.messages(Level.WARN) == []
    assert fine.messages(Level.OK, "source") == ["answers; it is cluster a"]


def test_a_store_that_cannot_be_opened_hides_no_other(
    look: Callable[..., Tries], destination: MemoryLog, store: MemoryStore
) -> None:
    save(store, "events", p0=anchored())
    other = LEAST[IN_FRONT:].replace("clicks", "views").replace("STORE", "nothing:x")
    found = look(LEAST + other, destination)
    assert found.exit_code is ExitCode.USAGE
    assert found.messages(Level.FAIL, "job views") == ["There is no store with the scheme 'nothing'."]
    assert len(found.messages(Level.OK, "job clicks")) == 1


@pytest.mark.parametrize("more", [[], ["--offline"]])
def test_malformed_addresses_are_told_first_and_once(
    write: Callable[[str], Path], capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    wrong = f"{LEAST}sink = 'delta:/x?appid=1'\n".replace("STORE", "sqlite://o.db")
    path = write(wrong)
    assert main(["config", "check", "-c", str(path), "--format", "json", *more]) == ExitCode.USAGE
    tried = json.loads(capsys.readouterr().out)["tried"]
    assert [each["subject"] for each in tried[:2]] == ["job clicks", "job clicks"]
    sentences = [each["said"] for each in tried]
    assert ["SQLite" in sentences[0], "appid" in sentences[1]] == [True] * 2
    assert len(sentences) == len({*sentences})


@pytest.mark.parametrize(
    ("asked", "error", "level", "code"),
    [
        ((MemoryLog, "log_ends"), Changed("The topic is gone."), Level.FAIL, ExitCode.UNREACHABLE),
        ((MemoryLog, "read"), Refused("User me needs Read."), Level.FAIL, ExitCode.UNREACHABLE),
    ],
)
def test_what_is_refused_is_told(
    look: Callable[..., Tries],
    destination: MemoryLog,
    store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
    asked: tuple[type, str],
    error: Exception,
    level: Level,
    code: ExitCode,
) -> None:
    save(store, "events", p0=anchored())

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(*asked, refuse)
    found = look(LEAST, destination)
    assert found.exit_code is code
    assert [each for each in found.messages(level) if each.endswith(str(error))] != []


# ---------------------------------------------------------------- names, and where the jobs live


@pytest.fixture
def local(write: Callable[[str], Path]) -> Callable[[str], Tries]:
    def at(section: str) -> Tries:
        config = load_config(write(with_section(section)))
        tries = Tries()
        check.unread_names(config, tries)
        check.state_store(config, config.jobs, tries, offline=False)
        return tries

    return at


def test_a_name_for_a_topic_that_no_job_reads_is_a_warning(local: Callable[[str], Tries]) -> None:
    """The topic that was meant falls back to the policy's name."""
    names = "[topics.names.b]\n"
    found = local(f'{names}"evnts@a" = "renamed"\n"others@a" = "others"\n')
    assert found.exit_code is ExitCode.OK
    assert found.messages(Level.WARN, "topics") == [
        '[topics.names.b] names "evnts@a", which no job reads.',
        '[topics.names.b] names "others@a", which no job reads.',
    ]
    steps = [each.next_step for each in found.found if each.subject == "topics"]
    assert steps == ["Did you mean events@a? Otherwise remove it.", "Otherwise remove it."]
    assert not local(f'{names}"events@a" = "renamed"\n').messages(Level.WARN, "topics")


def test_without_a_state_store_no_job_starts_by_its_hook(local: Callable[[str], Tries]) -> None:
    found = local("")
    assert found.messages(Level.WARN, "state") == ["There is no [state] store: hook, move and status need one."]
    assert found.exit_code is ExitCode.OK, "plans need none"


def test_where_each_job_lives_is_shown_with_the_state_store(
    write: Callable[[str], Path], local: Callable[[str], Tries], tmp_path: Path
) -> None:
    section = f'[state]\nstore = "sqlite:///{tmp_path}/state.db"'
    found = local(section)
    assert found.exit_code is ExitCode.UNREACHABLE
    (missing,) = (each for each in found.found if each.level is Level.FAIL)
    assert missing.subject == "state"
    assert "reconciler init -c FILE" in missing.next_step

    path = write(with_section(section))
    assert main(["init", "-c", str(path)]) == 0
    found = local(section)
    assert found.messages(Level.WARN, "state") == ["Only this machine's hooks see a SQLite file."]
    (said,) = found.messages(Level.OK, "job clicks")
    assert said == "where it lives is not recorded: its first start, or reconciler move --to a, records it"
    for to, lives in ((None, "lives on a"), ("b", "is moving to b from a")):
        with_state(path, to=to)
        (said,) = local(section).messages(Level.OK, "job clicks")
        assert said == f"{lives}, since 2027-01-15T08:00:00Z, by ops@here"


def test_a_state_store_of_other_machines_is_tried_unless_offline(write: Callable[[str], Path]) -> None:
    config = load_config(write(with_section(f'[state]\nstore = "memory:config-check-{uuid.uuid4().hex}"')))
    for offline in (True, False):
        tries = Tries()
        check.state_store(config, config.jobs, tries, offline=offline)
        assert bool(tries.messages(Level.FAIL, "state")) is not offline


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    "store",
    [
        *("hbase://h:9090/t?layout=cloudera#${S}", "hbase://h:9090/t?layout=cloudera&foo=${S}", "kafka-group:?x=${S}"),
        *("zookeeper://h:${S}/x?layout=consumers", "zookeeper://h:1/x?layout=single#${S}", "kafka-group:${S}"),
        *("sqlite:///x.db#${S}", "postgresql://h/db?table=t&options=-c%20x=${S}"),
        *("hbase://h:9090/${STORE_PASSWORD}/x?layout=cloudera", "files:/srv/${A_TOKEN}"),
    ],
)
def test_a_secret_in_a_part_of_an_address_that_has_no_use_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], store: str
) -> None:
    for name in ("S", "STORE_PASSWORD", "A_TOKEN"):
        monkeypatch.setenv(name, "hunter2-opensesame")
    path = tmp_path / "reconciler.toml"
    path.write_text(
        '[clusters.a]\n[clusters.b]\nbootstrap_servers = "b:1"\n[[jobs]]\nhome = "a"\n'
        f'name = "clicks"\ntopics = ["events"]\noffsets = "{store}"\n'
    )
    for how in ("text", "json"):
        main(["config", "check", "-c", str(path), "--offline", "--format", how])
        shown = capsys.readouterr()
        assert shown.out
        assert "hunter2" not in shown.out + shown.err


# ---------------------------------------------------------------- records that do not have what is named


FRAME = b"\0\0\0\0\7"


@pytest.mark.parametrize(
    ("identity", "value", "message", "next_step"),
    [
        (
            'id = "json:$.trace.id"',
            b'{"trace.id": "t"}',
            'id = "json:$.trace.id": none of the 3 records read has a value at $.trace.id.',
            "Correct [jobs.identity] id; a name with dots is written like json:$['trace.id'].",
        ),
        (
            'timestamp = "header:at"',
            b"v",
            'timestamp = "header:at": none of the 3 records read has the header "at".',
            "Correct [jobs.identity] timestamp.",
        ),
        (
            'source_offset = "header:o"',
            b"v",
            'source_offset = "header:o": none of the 3 records read has the header "o".',
            "Correct [jobs.identity] source_offset.",
        ),
        (
            'source_offset = "header:h"',
            b"v",
            'source_offset = "header:h": the header "h" of record 0 holds 3 bytes (61 62 63), which is neither decimal '
            "text nor 4 or 8 bytes.",
            "Correct [jobs.identity] source_offset.",
        ),
        (
            'id = "json:$.id"',
            FRAME + b'{"id": 1}',
            "the values of its records are framed by a schema registry, and another one may number schemas "
            "differently.",
            'Add to its [jobs.identity]: frame = "confluent"',
        ),
    ],
)
def test_records_that_do_not_have_what_the_identity_names_are_a_warning(
    look: Callable[..., Tries], identity: str, value: bytes, message: str, next_step: str
) -> None:
    log = MemoryLog("b", {"a.events": 2})
    for number in range(3):
        log.partition("a.events", 0).append(1_700_000_000_000 + number, b"k", value, (("h", b"abc"),))
    found = look(f"{LEAST}[jobs.identity]\n{identity}\n", log)
    assert found.exit_code is ExitCode.OK
    assert (message, next_step) in [(each.message, each.next_step) for each in found.found if each.level is Level.WARN]


def test_a_registry_that_does_not_answer_is_a_failure(look: Callable[..., Tries]) -> None:
    pytest.importorskip("confluent_kafka.schema_registry")
    log = MemoryLog("b", {"a.events": 1})
    log.partition("a.events", 0).append(1, b"k", FRAME + b"avro")
    registry = '[registry]\nurl = "http://127.0.0.1:1"\n"max.retries" = 0\n'
    found = look(f'{registry}{LEAST}[jobs.identity]\nid = "avro:$.id"\nframe = "confluent"\n', log)
    (failure,) = found.messages(Level.FAIL, "job clicks")
    assert "The schema registry http://127.0.0.1:1 did not answer" in failure
    assert found.exit_code is ExitCode.UNREACHABLE


def test_records_that_have_what_the_identity_names_are_not_mentioned(look: Callable[..., Tries]) -> None:
    log = MemoryLog("b", {"a.events": 2})
    for number in range(3):
        log.partition("a.events", 0).append(1, b"k", FRAME + b'{"id": 1}', (("o", b"%d" % number),))
    named = 'id = "json:$.id"\nsource_offset = "header:o"\nframe = "confluent"\n'
    for each_log in (log, MemoryLog("b", {"a.events": 2})):
        found = look(f"{LEAST}[jobs.identity]\n{named}", each_log)
        assert not [each for each in found.messages(Level.WARN, "job clicks") if "records" in each]
