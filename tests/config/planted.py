"""Planted secrets, and the search for them in output: as they are, percent-encoded, escaped, or in base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote_plus

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}")


def found_in(text: str, secrets: Iterable[str]) -> list[str]:
    """The secrets that a reader of the text can recognise."""
    readings = [text, unquote_plus(text), _unescaped(text), *_decoded(text)]
    return [secret for secret in secrets if any(secret in reading for reading in readings)]


def found_in_files(folder: Path, secrets: Iterable[str], *, leave_out: Iterable[str] = ()) -> dict[str, list[str]]:
    """The same for every file below a folder, by the file's name; ``leave_out`` are patterns of files."""
    secrets, left_out = list(secrets), {path for pattern in leave_out for path in folder.rglob(pattern)}
    texts = {
        str(path.relative_to(folder)): path.read_bytes().decode(errors="replace")
        for path in folder.rglob("*")
        if path.is_file() and path not in left_out
    }
    return {name: found for name, text in texts.items() if (found := found_in(text, secrets))}


def _unescaped(text: str) -> str:
    return text.replace("\\\\", "\\").replace("\\/", "/").replace("\\n", "\n").replace('\\"', '"').replace("\\'", "'")


def _decoded(text: str) -> Iterable[str]:
    """What the text's base64 says, from each of the four places where a group of it may begin."""
    for found in set(_BASE64.findall(text)):
        word = found.replace("-", "+").replace("_", "/")
        for begin in range(4):
            part = word[begin:]
            try:
                whole = part[:-1] if len(part) % 4 == 1 else part
                yield base64.b64decode(whole + "=" * (-len(whole) % 4)).decode(errors="replace")
            except binascii.Error:
                continue
