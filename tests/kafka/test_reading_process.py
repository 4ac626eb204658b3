"""Reads in a process of their own: what it answers, what its limit of memory does, and its end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Producer

from reconciler import waits
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import NotRead, Refused, Unreachable
from reconciler.core.probes import Chunk, Withheld
from reconciler.core.question import Question
from reconciler.core.reconcile import reconcile
from reconciler.core.verdicts import Verdict
from reconciler.kafka import reading_process, sent
from reconciler.kafka.asking import _part
from reconciler.kafka.engine import Inquiry, run
from reconciler.kafka.reader import KafkaLogReader
from reconciler.kafka.reading_process import ProcessReader, _may_fork, open_log
from reconciler.kafka.worker import IN_BULK, error_of
from reconciler.ports import ReadRequest, TopicInfo, TopicPartition
from tests.kafka.bombs import MIB, plant
from tests.waiting import LIMIT_S, wait_until

TOPIC = "events"
MEMORY = 128 * MIB
PLACES = [TopicPartition(TOPIC, number) for number in range(4)]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The client library's own cluster for tests: it keeps batches as they came. Partition 2 of 4 holds a bomb."""
    one_batch = {"linger.ms": 60_000}  # of each partition, sent by flush: a read may end behind any batch
    cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0, **one_batch})
    # The topic is known before it gets records: those that wait for its partitions would arrive as another batch.
    (broker,) = cluster.list_topics(TOPIC, timeout=10).brokers.values()
    for place in PLACES:
        cluster.produce(TOPIC, None, b"key", partition=place.partition, headers=[("id", b"\0\xff"), ("none", None)])
        for number in range(9):
            cluster.produce(
                TOPIC, b"value %d" % number, partition=place.partition, timestamp=1_700_000_000_000 + number
            )
    assert cluster.flush(10) == 0
    plant(f"{broker.host}:{broker.port}", TOPIC, 2, "zstd", each_mib=300)
    yield f"{broker.host}:{broker.port}"
    del cluster


def settings(bootstrap: str) -> dict[str, object]:
    return {"client": {"bootstrap.servers": bootstrap, "log_level": 0}, "timeout_s": 10.0, "who": "destination"}


def reader_of(bootstrap: str) -> KafkaLogReader:
    return open_log({"bootstrap.servers": bootstrap, "log_level": 0}, memory=MEMORY)


def reader_here(bootstrap: str) -> KafkaLogReader:
    return KafkaLogReader({"bootstrap.servers": bootstrap, "log_level": 0})


def fields(chunk: Chunk) -> tuple[object, ...]:
    names = ("offset", "timestamp_ms", "append_time", "key", "value")
    records = [(*(getattr(each, name) for name in names), [*each.headers]) for each in chunk.records]
    return records, chunk.next_offset, chunk.out_of_range


def of_message(message: Any) -> tuple[object, ...]:
    kind, stamp = message.timestamp()
    headers = message.headers() or []
    return message.offset(), stamp, kind == TIMESTAMP_LOG_APPEND_TIME, message.key(), message.value(), headers


def test_records_read_apart_are_the_records(bootstrap: str) -> None:
    requests = [ReadRequest(PLACES[0], 0, 3), ReadRequest(PLACES[1], 4, 100), ReadRequest(PLACES[0], 8, 1)]
    with closing(reader_of(bootstrap)) as there, closing(reader_here(bootstrap)) as here:
        sent, read = there.read(requests), here.read(requests)
    assert [fields(chunk) for chunk in sent] == [fields(chunk) for chunk in read]
    records = sent[0].records
    assert records[0].headers == (("id", b"\0\xff"), ("none", None))
    assert [record.offset for record in records[1:]] == [1, 2]
    assert [record.offset for record in records[::-1]] == [2, 1, 0]
    assert records[-1].value == b"value 1"


def test_a_header_name_that_is_not_utf8_leaves_its_record_without_headers(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The partition could not be read at all, and the hint was to delete the log."""
    from tests.kafka import odd_headers

    place = TopicPartition("odd", 0)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce("odd", b"before", partition=0, headers=[("id", b"6")])
    assert producer.flush(10) == 0
    odd_headers.plant(bootstrap, "odd", 0)
    producer.produce("odd", b"behind", partition=0, headers=[("id", b"8")])
    assert producer.flush(10) == 0
    expected = [(b"before", [("id", b"6")]), (b"odd", []), (b"behind", [("id", b"8")])]
    with closing(reader_of(bootstrap)) as there, closing(reader_here(bootstrap)) as here:
        for reader in (there, here):
            chunks = [reader.read([ReadRequest(place, offset, 1)])[0] for offset in range(3)]
            records = [record for chunk in chunks for record in chunk.records]
            sent.warn_of_headers.cache_clear()
            assert [record.value for record in records] == [value for value, _ in expected]
            assert caplog.messages == [], "a job that needs no headers hears nothing of it"
            for _ in range(2):
                assert [(record.value, [*record.headers]) for record in records] == expected
            why = "odd-0 has records with a header name that is not UTF-8: their headers cannot be read here"
            assert caplog.messages == [why]
            caplog.clear()


def test_frames_of_several_chunks_hold_the_records(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent, "RECORDS_A_FRAME", 4)
    withheld = Withheld(NotRead("too large", hint="Raise it."))
    places = ((0, 0), (1, 8), (3, 2), (0, 10))
    with closing(reader_here(bootstrap)) as here:
        requests = [ReadRequest(PLACES[number], offset, 5) for number, offset in places]
        read = dict(answer for answers in here.read_each(requests) for answer in answers)
    answers: list[tuple[int, Chunk]] = [*sorted(read.items()), (4, withheld)]
    framed = [b"".join(sent.pack(frame)) for frame in sent.frames(answers)]
    assert len(framed) == 3
    unpacked = dict(each for frame in framed for each in sent.unpack(memoryview(frame)))
    refused = unpacked.pop(4)
    assert isinstance(refused, Withheld)
    assert (refused.error.message, refused.error.hint) == ("too large", "Raise it.")
    assert {index: fields(chunk) for index, chunk in unpacked.items()} == {
        index: ([*map(of_message, chunk.records)], chunk.next_offset, False) for index, chunk in read.items()
    }
    *columns, _, _ = sent.pack(answers)  # without keys and values
    with pytest.raises(ValueError, match="lacks some of its"):
        sent.unpack(memoryview(b"".join(columns)[:-1]))


def test_a_bomb_is_withheld_and_the_other_partitions_are_read(bootstrap: str) -> None:
    with closing(reader_of(bootstrap)) as reader:
        before, *others = reader.read(
            [ReadRequest(PLACES[2], 10, 5), *(ReadRequest(at, 5, 5) for at in PLACES if at.partition != 2)]
        )
        assert [chunk.next_offset for chunk in others] == [10, 10, 10]
        assert isinstance(before, Withheld)
        with pytest.raises(NotRead, match=f"{TOPIC}-2 could not be read from offset 10 on: .* more than 128 MiB"):
            assert before.records
        (again,) = reader.read([ReadRequest(PLACES[0], 0, 1)])
        assert again.next_offset == 1


def test_a_partition_that_cannot_be_read_is_unresolved_and_hides_no_other(bootstrap: str) -> None:
    def question(offset: int) -> Question:
        return Question(
            StoredOffset(offset + 1, Anchor(offset, cluster_id="c", topic_id="t", fingerprint="0" * 32)), "c", "t"
        )

    with closing(reader_of(bootstrap)) as reader:
        asked = {at: Inquiry(at, partial(reconcile, question(10 if at.partition == 2 else 5))) for at in PLACES}
        found = run(reader, asked, clock=time.monotonic).found
    assert found[PLACES[2]].finding.verdict is Verdict.UNRESOLVED
    assert "events-2 could not be read from offset" in found[PLACES[2]].finding.detail
    assert all("could not be read" not in found[at].finding.detail for at in PLACES if at.partition != 2)


def test_requests_of_one_place_share_that_it_was_withheld() -> None:
    withheld, at = Withheld(NotRead("too large")), PLACES[0]
    assert _part(withheld, ReadRequest(at, 7, 9), ReadRequest(at, 7, 1)) is withheld
    assert _part(withheld, ReadRequest(at, 7, 9), ReadRequest(at, 8, 1)) is None


def test_a_process_that_was_ended_is_replaced_by_a_program(bootstrap: str) -> None:
    """This process has clients by now, so it cannot be copied."""
    assert not _may_fork()
    with closing(ProcessReader(settings(bootstrap), MEMORY)) as reader:
        for _ in range(2):
            (chunk,) = reader.read([ReadRequest(PLACES[0], 5, 100)])
            assert chunk.next_offset == 10
            assert reader._process is not None
            os.kill(reader._process._pid, signal.SIGKILL)


@pytest.mark.parametrize(("partitions", "started"), [(IN_BULK, True), (IN_BULK - 1, False)])
def test_a_process_is_started_before_many_partitions_are_read(bootstrap: str, partitions: int, started: bool) -> None:
    with closing(ProcessReader(settings(bootstrap), MEMORY)) as reader:
        reader.expect({TOPIC: TopicInfo(TOPIC, None, tuple(range(partitions)))})
        before = reader._process
        assert (before is not None) == started
        (chunk,) = reader.read([ReadRequest(PLACES[0], 5, 100)])
        assert (len(chunk.records), reader._process == before) == (5, started)


def test_a_limit_of_processes_is_told_by_the_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the command as a bug where the log was opened."""

    def fail(descriptor: int) -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(reading_process, "_may_fork", lambda: True)
    monkeypatch.setattr(reading_process, "_forked", fail)
    with closing(ProcessReader(settings("none:1"), MEMORY)) as reader:
        reader.expect({TOPIC: TopicInfo(TOPIC, None, tuple(range(IN_BULK)))})
        with pytest.raises(Refused, match="started: Resource temporarily unavailable") as caught:
            reader.read([ReadRequest(PLACES[0], 5, 100)])
    assert "limits of processes" in str(caught.value.hint)


def test_an_error_there_is_the_same_error_here() -> None:
    error = error_of(b'["Refused", "It said no.", "Ask again.", true]')
    assert (type(error), error.message, error.hint, error.retryable) == (Refused, "It said no.", "Ask again.", True)


def test_a_read_that_was_repeated_names_all_the_time_that_was_waited() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, waits.waiting("", waits.for_seconds(30)) as wait:
        wait.began -= 20
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        reader = ProcessReader({**settings(place), "timeout_s": 1.0}, MEMORY)
        with closing(reader), pytest.raises(Unreachable, match=r"events-0: .* gave no answer in 2[1-9] s"):
            reader.read([ReadRequest(PLACES[0], 0, 1)])


def test_settings_with_functions_stay_here(bootstrap: str) -> None:
    client = {"bootstrap.servers": bootstrap, "log_level": 0, "stats_cb": print}
    with closing(open_log(client, memory=MEMORY)) as reader:
        assert reader._records is None
        assert reader.read([ReadRequest(PLACES[0], 5, 100)])[0].next_offset == 10


def test_a_process_that_somebody_else_has_waited_for_is_not_killed(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another process's by then."""
    with closing(ProcessReader(settings(bootstrap), MEMORY)) as reader:
        reader.read([ReadRequest(PLACES[0], 5, 100)])
        assert reader._process is not None
        os.kill(reader._process._pid, signal.SIGKILL)
        os.waitpid(reader._process._pid, 0)
        killed: list[int] = []
        monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
        reader.close()
        assert killed == []


ALONE = """
import os, sys
from reconciler.kafka import reading_process
from reconciler.ports import ReadRequest, TopicPartition
assert reading_process._may_fork()
reader = reading_process.open_log({"bootstrap.servers": sys.argv[1]}, memory=1 << 28)
child = reader._records._process._pid
print(reader.read([ReadRequest(TopicPartition("events", 0), 5, 100)])[0].next_offset, child)
reader.close() if sys.argv[2] == "closed" else os._exit(0)
"""


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_copy_reads_and_ends_with_the_process(bootstrap: str, end: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ALONE, bootstrap, end], capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    following, child = map(int, ended.stdout.split())
    assert following == 10
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the reading process has ended")
