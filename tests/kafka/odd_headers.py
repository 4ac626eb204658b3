"""A record whose header has a name that is not UTF-8. The client library's producer makes none: it is sent by hand."""

from __future__ import annotations

import socket
import struct

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

PRODUCE, VERSION = 0, 7


def plant(bootstrap: str, topic: str, partition: int) -> None:
    """Write one such record, with the key ``key`` and the value ``odd``."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 100_000)
    builder.append(0, timestamp=1_700_000_000_000, key=b"key", value=b"odd", headers=[("QQ", b"x"), ("id", b"7")])
    batch = bytearray(bytes(builder.build()).replace(b"QQ", b"\xff\xfe"))
    batch[17:21] = struct.pack(">I", calc_crc32c(bytes(batch[21:])))
    request = struct.pack(">hhih", PRODUCE, VERSION, 1, -1)  # no client id
    request += struct.pack(">hhii", -1, 1, 5_000, 1) + _text(topic) + struct.pack(">ii", 1, partition)
    request += struct.pack(">i", len(batch)) + batch
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.recv(1_000)
    at = 4 + 4 + 4 + len(_text(topic)) + 4 + 4  # behind size, correlation, topics, name, partitions, partition
    assert answer[at : at + 2] == b"\0\0", answer


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
