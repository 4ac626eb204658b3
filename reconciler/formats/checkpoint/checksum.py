"""Hadoop's checksum of a file on a local file system, in the file ``.NAME.crc`` beside it.

``crc``, a NUL, the number of bytes in a chunk (int32, big-endian), then the CRC-32 of each chunk. Source: Hadoop 3.4
(``ChecksumFs``, ``ChecksumFileSystem``), compared with files that PySpark 4.2.1 wrote. Spark 3.5.7, 4.2.1 and 4.3.0
read a file that does not fit (``FileContextBasedCheckpointFileManager``, the default), so it is only a reason for a
warning; ``FileSystemBasedCheckpointFileManager`` refuses it. A checksum file of another form counts as none.
"""

from __future__ import annotations

import zlib

_HEAD = b"crc\0"


def name_of(name: str) -> str:
    """Where the checksum of the file ``name`` is, both relative to one folder."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}.{last}.crc"


def fits(data: bytes, checksum: bytes) -> bool:
    """False if the file's content is certainly not what it was when the checksum was made."""
    size = int.from_bytes(checksum[4:8], "big", signed=True)
    if not checksum.startswith(_HEAD) or len(checksum) < 8 or size <= 0:
        return True
    sums = [zlib.crc32(data[at : at + size]).to_bytes(4, "big") for at in range(0, len(data), size)]
    return checksum[8:] == b"".join(sums)
