"""The least that a plan can cost on the wire: one ListOffsets and two Fetch of all partitions, spoken by hand.

    python -m docs.benchmarks.raw HOST:PORT TOPIC PARTITIONS OFFSET TIMESTAMP_MS

Looks up a time in every partition, then reads each at an offset and again at its end; decodes nothing of the records.
Layouts: ListOffsets version 1 and Fetch version 4 (KIP-98), the lowest that Kafka 4 answers (KIP-896).
"""

from __future__ import annotations

import socket
import struct
import sys

LIST_OFFSETS, FETCH = (2, 1), (1, 4)
PARTITION_BYTES = 64 * 1024
MOST_BYTES = 256 * 1024 * 1024


def main() -> None:
    place, topic, partitions, offset, timestamp_ms = sys.argv[1:]
    host, _, port = place.rpartition(":")
    numbers = range(int(partitions))
    name = struct.pack(">ih", 1, len(topic)) + topic.encode() + struct.pack(">i", len(numbers))
    looked_up = b"".join(struct.pack(">iq", number, int(timestamp_ms)) for number in numbers)
    with socket.create_connection((host, int(port))) as connection:
        ask(connection, LIST_OFFSETS, struct.pack(">i", -1) + name + looked_up)
        for at in (int(offset), int(offset) + 1):
            places = b"".join(struct.pack(">iqi", number, at, PARTITION_BYTES) for number in numbers)
            ask(connection, FETCH, struct.pack(">iiiib", -1, 100, 1, MOST_BYTES, 0) + name + places)


def ask(connection: socket.socket, kind: tuple[int, int], body: bytes) -> int:
    """Send one request; the size of its answer, which is read to its end."""
    head = struct.pack(">hhih", *kind, 1, 3) + b"raw"
    connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
    left = size = struct.unpack(">i", exactly(connection, 4))[0]
    while left:
        got = connection.recv(min(left, 1 << 20))
        if not got:
            raise SystemExit("the broker has closed the connection")
        left -= len(got)
    return size


def exactly(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        got = connection.recv(size - len(content))
        if not got:
            raise SystemExit("the broker has closed the connection")
        content += got
    return content


if __name__ == "__main__":
    main()
