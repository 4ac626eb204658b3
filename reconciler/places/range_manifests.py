"""Manifests of offset ranges, format ``reconciler.ranges/1``: one file a batch, JSON lines in UTF-8.

::

    {"format":"reconciler.ranges/1","group":"clicks","written_at_ms":1767229200000}
    {"topic":"events","partition":0,"from":4400,"until":4514}
    {"topic":"events","partition":3,"from":881,"until":881,"anchor":{"offset":880,"timestamp_ms":1767225600000}}
    {"end":3,"sha256":"…"}

- The first line gives the format and the group. ``written_at_ms`` (epoch ms) may be left out. With
  ``"snapshot":true`` the file names every partition of the group, and no older file is needed.
- A range: ``until`` is the next offset to read, ``from`` (may be left out) the first one that the batch read. The
  ``anchor`` is as in anchor lines. A range's own ``written_at_ms`` overrides the file's; null means "not known".
  ``"deleted":true`` in place of ``until`` deletes the partition's offset. ``stay`` (may be left out) is the number of
  the job's stay that it belongs to. Other keys are ignored, and kept.
- ``{"manifest":VERSION,"written_at_ms":…}`` in between: the ranges below were first written in an older manifest (where
  there is a VERSION), at that time.
- The last line counts the lines before it, and has the SHA-256 of their bytes, line breaks included. A file without it,
  or with another count or sum, is torn: its writer died, or has not finished.

A manifest's version is its number in the name, and the first eight digits of its sum.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reconciler.core import anchor_fields, json_fields
from reconciler.core.anchor_fields import LONG
from reconciler.core.anchors import Malformed, StoredOffset, TopicPartition
from reconciler.core.json_fields import FieldError

FORMAT = "reconciler.ranges/1"

_NAME = re.compile(r"([0-9]{20})\.jsonl")
_VERSION = re.compile(r"[0-9]{1,20}\.[0-9a-f]{8}\Z")
LAST_NUMBER = 10**20 - 1


class TornManifest(ValueError):
    """A manifest that was not written completely; the message completes a sentence."""


@dataclass(frozen=True, slots=True)
class ManifestRange:
    """One partition's range; ``text`` is its line, without line break.

    ``stored`` None: the partition's offset was deleted. ``stored.written_at_ms`` is the range's own, the section's
    or the file's. ``origin`` is the version of the manifest that first held it, None for this one. ``stay``: as the
    line names it.
    """

    topic: str
    partition: int
    stored: StoredOffset | None
    text: str
    origin: str | None = None
    stay: int | None = None

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole manifest. ``digest``: the first eight hex digits of its sum."""

    group: str
    ranges: tuple[ManifestRange, ...]
    snapshot: bool
    digest: str
    written_at_ms: int | None = None


# ---------------------------------------------------------------- names


def name_of(number: int) -> str:
    """A manifest's file name: twenty digits, so that names sort as numbers do."""
    if not 0 <= number <= LAST_NUMBER:
        raise ValueError(f"{number} does not fit into a manifest's name")
    return f"{number:020d}.jsonl"


def number_of(name: str) -> int | None:
    """The number in a manifest's file name, None for any other name."""
    found = _NAME.fullmatch(name)
    return int(found.group(1)) if found else None


def version_of(number: int, digest: str) -> str:
    return f"{number}.{digest}"


# ---------------------------------------------------------------- writing


def line_of(
    topic: str,
    partition: int,
    stored: StoredOffset | None,
    *,
    from_offset: int | None = None,
    stay: int | None = None,
) -> str:
    """A range's line, without a time of writing: the section's or the file's applies."""
    content: dict[str, object] = {"topic": topic, "partition": partition}
    if stored is None:
        content["deleted"] = True
        return json_fields.compact(content)
    if from_offset is not None:
        content["from"] = from_offset
    content["until"] = stored.offset
    if stored.anchor is not None:
        content["anchor"] = anchor_fields.without_none(anchor_fields.dump(stored.anchor, LONG))
    if stay is not None:
        content["stay"] = stay
    return json_fields.compact(content)


def dump(
    group: str,
    ranges: Iterable[ManifestRange],
    *,
    written_at_ms: int | None,
    snapshot: bool = False,
    reason: str | None = None,
    nonce: str | None = None,
) -> bytes:
    """A whole manifest. Ranges of another time or origin than this manifest's get sections of their own.

    With a ``nonce`` no two manifests have the same bytes.
    """
    header: dict[str, object] = {"format": FORMAT, "group": group}
    if written_at_ms is not None:
        header["written_at_ms"] = written_at_ms
    if snapshot:
        header["snapshot"] = True
    if reason is not None:
        header["reason"] = reason
    if nonce is not None:
        header["nonce"] = nonce
    lines = [json_fields.compact(header)]
    sections: dict[tuple[str | None, int | None], list[str]] = {(None, written_at_ms): []}
    for each in ranges:
        time = written_at_ms
        if each.stored is not None and not isinstance(each.stored, Malformed):  # else its line is copied unchanged
            time = each.stored.written_at_ms
        sections.setdefault((each.origin, time), []).append(each.text)
    for (origin, time), texts in sections.items():
        if (origin, time) != (None, written_at_ms):
            lines.append(json_fields.compact({"manifest": origin, "written_at_ms": time}))
        lines.extend(texts)
    body = "".join(f"{line}\n" for line in lines).encode()
    end = json_fields.compact({"end": len(lines), "sha256": hashlib.sha256(body).hexdigest()})
    return body + end.encode() + b"\n"


def digest_of(data: bytes) -> str:
    """The digest of a manifest that ``dump`` made."""
    return hashlib.sha256(data[: data.rstrip(b"\n").rindex(b"\n") + 1]).hexdigest()[:8]


# ---------------------------------------------------------------- reading


def load(data: bytes) -> Manifest:
    """Read a manifest.

    Raises TornManifest for an incomplete one, and FieldError for a complete one that is not of this format.
    """
    lines, digest = _complete_lines(data)
    # The sum fits, so the file is as its writer left it: any other fault is the writer's.
    header = json_fields.json_object(lines[0])
    if header.get("format") != FORMAT:
        raise FieldError("format", f"is not {FORMAT!r}")
    written_at_ms = json_fields.integer(header, "written_at_ms")
    ranges = tuple(_ranges(lines[1:], written_at_ms))
    seen: set[TopicPartition] = set()
    for each in ranges:
        if each.key in seen:
            raise FieldError(None, f"repeats {each.key}")
        seen.add(each.key)
    group = json_fields.required_text(header, "group")
    return Manifest(group, ranges, json_fields.flag(header, "snapshot"), digest, written_at_ms)


def _complete_lines(data: bytes) -> tuple[list[str], str]:
    """The lines before the last one, and the digest. Raises TornManifest, or FieldError for lines that are not text."""
    whole = data.removesuffix(b"\n")
    body, _, last = whole.rpartition(b"\n")
    body += b"\n"
    try:
        end = json_fields.json_object(last.decode())
        count, stated = json_fields.integer(end, "end"), json_fields.string(end, "sha256")
    except (FieldError, UnicodeDecodeError):
        count = stated = None
    if count is None or stated is None:
        raise TornManifest("it has no last line with a count and a sum")
    digest = hashlib.sha256(body).hexdigest()
    if stated.lower() != digest:
        raise TornManifest("its sum is not the one in its last line")
    try:
        lines = body.decode().split("\n")[:-1]
    except UnicodeDecodeError as err:
        raise FieldError(None, "is not text") from err
    if count != len(lines):
        raise TornManifest(f"it has {len(lines)} lines before the last one, which says {count}")
    return lines, digest[:8]


def _ranges(lines: Sequence[str], written_at_ms: int | None) -> Iterable[ManifestRange]:
    origin, time = None, written_at_ms
    for number, line in enumerate(lines, start=2):
        try:
            content = json_fields.json_object(line)
            if "manifest" in content:
                origin, time = _origin(content), json_fields.integer(content, "written_at_ms")
            else:
                yield _any_range(number, line, content, origin, time)
        except FieldError as err:
            raise FieldError(f"line {number}:", err.sentence) from err


def _any_range(
    number: int, line: str, content: Mapping[str, object], origin: str | None, time: int | None
) -> ManifestRange:
    """A range, perhaps malformed. Raises FieldError where it is not certain whose range it is."""
    topic, partition = _place(content)
    try:
        return _range(line, content, origin, time)
    except FieldError as err:
        bad = Malformed(f"line {number}: {err.sentence}", "")
        return ManifestRange(topic, partition, bad, line, origin)


def parse_range(line: str, written_at_ms: int | None) -> ManifestRange:
    """Read one range's line. Raises FieldError, also for two lines."""
    if "\n" in line:
        raise FieldError(None, "is more than one line")
    return _range(line, json_fields.json_object(line), None, written_at_ms)


def _range(line: str, content: Mapping[str, object], origin: str | None, time: int | None) -> ManifestRange:
    topic, partition = _place(content)
    if json_fields.flag(content, "deleted"):
        return ManifestRange(topic, partition, None, line, origin)
    first = json_fields.integer(content, "from")
    until = json_fields.required(json_fields.integer(content, "until"), "until")
    if first is not None and first > until >= 0:
        raise FieldError("from", "is after until")
    anchor = anchor_fields.load_optional(content.get("anchor"))
    own = json_fields.integer(content, "written_at_ms") if "written_at_ms" in content else time
    stay = json_fields.integer(content, "stay", 1)
    return ManifestRange(topic, partition, StoredOffset(until, anchor, own), line, origin, stay)


def _place(content: Mapping[str, object]) -> tuple[str, int]:
    topic = json_fields.required_text(content, "topic")
    number = json_fields.integer(content, "partition", 0, json_fields.INT32_MAX)
    return topic, json_fields.required(number, "partition")


def _origin(content: Mapping[str, object]) -> str | None:
    origin = json_fields.string(content, "manifest")
    if origin is not None and not _VERSION.match(origin):
        raise FieldError("manifest", "is not a manifest's version")
    return origin
