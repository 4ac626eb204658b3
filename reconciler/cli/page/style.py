"""What every page shares: one file without network, its style, and a policy that lets no other style or script run."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from importlib.resources import files

from reconciler.cli.terminal.text import visible

LONGEST = 2_000
"""Characters of one text on a page. Names in Kafka have 249 at most; whatever is longer is whole in the plan's file."""


@cache
def asset(name: str) -> str:
    """A file of ``assets``, as it stands in the page."""
    return files("reconciler.cli.page").joinpath("assets", name).read_text(encoding="utf-8")


def text(value: object, longest: int = LONGEST) -> str:
    """Anything as text of a page: escaped, what cannot be seen or turns the reading direction as an escape."""
    shown = str(value)
    if len(shown) > longest:
        half = longest // 2
        shown = f"{shown[:half]}… ({len(shown) - 2 * half:,} more) …{shown[-half:]}"
    return escape(visible(shown))


def document(title: str, body: str, script: str | None = None) -> str:
    """The whole file. ``title`` is text; ``body`` is markup whose every text went through ``text``."""
    style = asset("page.css")
    runs = f"script-src {_hashed(script)}; require-trusted-types-for 'script'; trusted-types 'none'; " if script else ""
    policy = f"default-src 'none'; style-src {_hashed(style)}; {runs}base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{text(title)}</title>\n<style>{style}</style>\n<body>\n{body}\n"
        f"{f'<script>{script}</script>' if script else ''}\n</html>\n"
    )


def _hashed(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
