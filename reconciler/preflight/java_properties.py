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
_TOKEN = re.compile(
    r"""[\x00-\x20]+ | //[^\r\n]* | /\*.*?\*/
    | (?P<quoted>"(?:\\.|[^"\\\r\n])*" | '(?:\\.|[^'\\\r\n])*')
    | (?P<word>[A-Za-z_$\u00a0-\U0010ffff][A-Za-z0-9_.$\u00a0-\U0010ffff-]*)
    | (?P<sign>[=;])""",
    re.VERBOSE | re.DOTALL,
)
_JAAS_ESCAPE = re.compile(r"\\(?:(?P<octal>[0-3][0-7]{0,2}|[4-7][0-7]?)|(?P<other>.))", re.DOTALL)
_JAAS_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


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
    """The login modules of a JAAS line. Raises UnreadableText for a line that Kafka does not take."""
    tokens = list(_tokens(text))
    modules, at = [], 0
    while at < len(tokens):
        kind, name = tokens[at]
        if kind == "sign" or at + 1 == len(tokens) or tokens[at + 1][0] == "sign":
            raise UnreadableText('is not LOGIN.MODULE required NAME="VALUE" …;')
        at += 2  # the control flag follows the name
        options: dict[str, str] = {}
        while at < len(tokens) and tokens[at] != ("sign", ";"):
            parts = tokens[at : at + 3]
            if [kind == "sign" for kind, _ in parts] != [False, True, False] or parts[1][1] != "=":
                raise UnreadableText("has an option that is not NAME=\"VALUE\", or a ';' too few")
            options[parts[0][1]] = parts[2][1]
            at += 3
        modules.append(LoginModule(name, options))
        at += 1
    return modules


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise UnreadableText("has a value that needs quotes, or a quote that is not closed")
        at = found.end()
        if found.lastgroup == "quoted":
            yield "text", _JAAS_ESCAPE.sub(_jaas_character, found["quoted"][1:-1])
        elif found.lastgroup is not None:
            yield found.lastgroup, found[0]


def _jaas_character(found: re.Match[str]) -> str:
    if found["octal"]:
        return chr(int(found["octal"], 8))
    return _JAAS_CONTROLS.get(found["other"], found["other"])
