"""Markup from templates: every value is escaped unless it is markup itself, and a policy admits one style and script.

``assets/page.html`` holds sections, each under a line ``<!-- template: NAME -->``. Placeholders are those of
``string.Template``. Line breaks are for the reader: before a tag or a placeholder they disappear, else they become a
space; only an empty line stays as one line break.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

from reconciler.core.text import visible

LONGEST = 2_000
"""Characters of one text on a page. Kafka's names have at most 249; a longer text is complete in the plan's file."""


class Markup(str):
    """Text that is HTML already: ``fill`` does not escape it."""

    __slots__ = ()


def escaped(value: object, longest: int = LONGEST) -> Markup:
    """``value`` as text of a page: HTML escaped, control and invisible characters as visible escapes, at most
    ``longest`` characters (the middle is left out)."""
    text = str(value)
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]}… ({len(text) - 2 * half:,} more) …{text[-half:]}"
    return Markup(escape(visible(text)))


def fill(template: str, **values: object) -> Markup:
    """A template with its placeholders filled. Values that are not ``Markup`` are escaped."""
    safe = {name: value if isinstance(value, Markup) else escaped(value) for name, value in values.items()}
    return Markup(_templates()[template].substitute(safe))


def fill_each(template: str, items: Iterable[Mapping[str, object]]) -> Markup:
    """A template once per item, joined."""
    return join(fill(template, **item) for item in items)


def join(parts: Iterable[Markup]) -> Markup:
    return Markup("".join(parts))


def document(title: str, body: Markup) -> str:
    """The whole file. It loads nothing; its policy allows only this style and this script, by their hashes."""
    style, script = asset("page.css"), asset("page.js")
    hashes = {"style_hash": _hash(style), "script_hash": _hash(script)}
    return fill("document", title=title, body=body, style=Markup(style), script=Markup(script), **hashes)


@cache
def asset(name: str) -> str:
    return files("reconciler.cli.page").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _templates() -> Mapping[str, Template]:
    _, *sections = re.split(r"<!-- template: (\w+) -->\n", asset("page.html"))
    return dict(zip(sections[::2], map(_template, sections[1::2]), strict=True))


def _template(text: str) -> Template:
    lines = re.split(r"\n\n\s*", text.strip())
    return Template("\n".join(re.sub(r"\n\s*", " ", re.sub(r"\n\s*(?=[<$])", "", line)) for line in lines))


def _hash(content: str) -> Markup:
    return Markup(f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'")
