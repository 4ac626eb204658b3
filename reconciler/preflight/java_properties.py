"""Text as Kafka's Java programs read it: properties files (``java.util.Properties.load``), and the login modules of a
JAAS line (Kafka's ``JaasConfig``). Pure. No error repeats a value: it may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*(?P<mark>[=:]?)[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|(?P<other>.))", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_VALUE = r"""(?:"(?:\\.|[^"\\\r\n])*"|'(?:\\.|[^'\\\r\n])*'|[A-Za-z_$][\w.$-]*)"""
_OPTION = re.compile(rf"\s+([\w.-]+)\s*=\s*({_VALUE})")
_MODULE = re.compile(rf"\s*([\w.$]+)\s+\w+((?:{_OPTION.pattern})*)\s*;")


class UnreadableText(ValueError):
    """Java cannot read it either. The message ends a sentence that begins with the property's name."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry of a JAAS line: the class, and its options."""

    name: str
    options: Mapping[str, str]

    @property
    def kind(self) -> str:
        """The class without its packages, which some distributions rename."""
        return self.name.rpartition(".")[2]


def logical_lines(text: str) -> Iterator[str]:
    """The lines of a properties file without comments and blank ones. One that ends in an odd number of backslashes
    goes on in the next; a comment never does."""
    pending: str | None = None
    for line in _LINE_END.split(text):
        line = line.lstrip(_BLANK)
        if pending is None and (not line or line[0] in "#!"):
            continue
        whole = (pending or "") + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = whole[:-1]
            continue
        pending = None
        yield whole
    if pending:
        yield pending


def read_line(line: str) -> tuple[str, str] | None:
    """Name and value of a logical line, as Java reads it. None for a name alone, which no file has on purpose.

    Raises UnreadableText for a ``\\u`` without four hexadecimal digits.
    """
    found = _KEY.match(line)
    if found is None or not found["key"] or (found.end() == len(line) and not found["mark"]):
        return None
    name = line_name(line)
    try:
        return name, _unescaped(line[found.end() :]).strip()  # Kafka trims every value
    except UnreadableText as error:
        raise UnreadableText(f"{name} {error}") from None


def line_name(line: str) -> str:
    """The name in a logical line; as it is written if Java cannot read it."""
    found = _KEY.match(line)
    key = found["key"] if found else ""
    try:
        return _unescaped(key)
    except UnreadableText:
        return key


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        if found["code"]:
            return chr(int(found["code"], 16))
        if found["other"] == "u":
            raise UnreadableText(r"has \u without four hexadecimal digits behind it")
        return _CONTROLS.get(found["other"], found["other"])

    return _ESCAPE.sub(one, text)


def login_modules(text: str) -> list[LoginModule]:
    """The login modules of a JAAS line. Raises UnreadableText for any but ``MODULE required NAME="VALUE" …;``, also for
    comments and for escapes of characters, which Kafka takes."""
    modules, at = [], 0
    while text[at:].strip():
        if (found := _MODULE.match(text, at)) is None:
            raise UnreadableText('is not LOGIN.MODULE required NAME="VALUE" …;')
        options = {name: _jaas_value(value) for name, value in _OPTION.findall(found[2])}
        modules.append(LoginModule(found[1], options))
        at = found.end()
    return modules


def _jaas_value(text: str) -> str:
    if text[0] not in "\"'":
        return text
    if re.search(r"\\[A-Za-z0-9]", text):
        raise UnreadableText(r"has a character written with \ and a letter or digit: write the character itself")
    return re.sub(r"\\(.)", r"\1", text[1:-1])
