"""A proxy in front of a broker that changes the answers to time lookups, as a faulty broker would give them.

Layouts: ListOffsets requests and responses, versions 1 to 9 (clients/src/main/resources/common/message in Kafka's
sources; flexible since 6, KIP-482).
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.demo.lab.faults.slow_link import SlowLink

LIST_OFFSETS, FLEXIBLE_SINCE, MAX_TIMESTAMP = 2, 6, -3
Lie = Callable[[int, int], int]
"""From the time asked for and the true offset (-1: none) to the offset that the broker says."""


class LyingLink(SlowLink):
    """The link to a broker whose lookups of times are ``lie``; None: the truth. Edges and records are never changed.

    ``newest_ms``: what it says is the log's largest timestamp; None: the truth.
    """

    lie: Lie | None = None
    newest_ms: int | None = None

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        asked: dict[int, tuple[int, dict[tuple[str, int], int]]] = {}
        for ends in ((client, server, self._note), (server, client, self._change)):
            threading.Thread(target=_pass_frames, args=(*ends, asked), daemon=True).start()

    def _note(self, frame: bytearray, asked: dict[int, Any]) -> None:
        key, version, correlation = struct.unpack_from(">hhi", frame)
        if key == LIST_OFFSETS:
            asked[correlation] = (version, _times_asked(frame, version))

    def _change(self, frame: bytearray, asked: dict[int, Any]) -> None:
        (correlation,) = struct.unpack_from(">i", frame)
        version, times = asked.pop(correlation, (0, {}))
        if self.lie is not None and times:
            _change_offsets(frame, version, times, self.lie, self.newest_ms)


class _Cursor:
    """Reads a request or a response from its beginning to its end."""

    def __init__(self, frame: bytearray, version: int) -> None:
        self.frame, self.place, self.is_flexible = frame, 0, version >= FLEXIBLE_SINCE

    def number(self, layout: str) -> int:
        (found,) = struct.unpack_from(f">{layout}", self.frame, self.place)
        self.place += struct.calcsize(f">{layout}")
        return int(found)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def length(self, layout: str) -> int:
        return self.varint() - 1 if self.is_flexible else self.number(layout)

    def text(self) -> str:
        length = max(0, self.length("h"))
        self.place += length
        return self.frame[self.place - length : self.place].decode()

    def tags(self) -> None:
        for _ in range(self.varint() if self.is_flexible else 0):
            self.varint()
            self.place += self.varint()


def _times_asked(frame: bytearray, version: int) -> dict[tuple[str, int], int]:
    """The times looked up, by topic and partition; negative ones ask for the log's edges or its largest timestamp."""
    cursor = _Cursor(frame, version)
    cursor.place = struct.calcsize(">hhi")
    length = cursor.number("h")  # the client's id is never in the compact form
    cursor.place += max(0, length)
    cursor.tags()
    cursor.number("i")
    if version >= 2:
        cursor.number("b")
    found = {}
    for _ in range(cursor.length("i")):
        topic = cursor.text()
        for _ in range(cursor.length("i")):
            partition = cursor.number("i")
            if version >= 4:
                cursor.number("i")
            found[topic, partition] = cursor.number("q")
            cursor.tags()
        cursor.tags()
    return found


def _change_offsets(
    frame: bytearray, version: int, times: dict[tuple[str, int], int], lie: Lie, newest_ms: int | None
) -> None:
    cursor = _Cursor(frame, version)
    cursor.number("i")
    cursor.tags()
    if version >= 2:
        cursor.number("i")
    for _ in range(cursor.length("i")):
        topic = cursor.text()
        for _ in range(cursor.length("i")):
            partition, error = cursor.number("i"), cursor.number("h")
            stamp_at, _ = cursor.place, cursor.number("q")
            offset_at, offset = cursor.place, cursor.number("q")
            if version >= 4:
                cursor.number("i")
            cursor.tags()
            if error == 0 and (time := times[topic, partition]) >= 0:
                struct.pack_into(">q", frame, offset_at, lie(time, offset))
            elif error == 0 and times[topic, partition] == MAX_TIMESTAMP and newest_ms is not None:
                struct.pack_into(">q", frame, stamp_at, newest_ms)
        cursor.tags()


def _pass_frames(
    giver: socket.socket, taker: socket.socket, look: Callable[[bytearray, dict[int, Any]], None], asked: dict[int, Any]
) -> None:
    with suppress(OSError, EOFError), giver, taker:
        while True:
            frame = bytearray(_exactly(giver, int.from_bytes(_exactly(giver, 4), "big")))
            look(frame, asked)
            taker.sendall(len(frame).to_bytes(4, "big") + frame)


def _exactly(giver: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = giver.recv(count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found
