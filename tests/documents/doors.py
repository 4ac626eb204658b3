"""The README's doors: a section for each kind of job."""

from __future__ import annotations

import re

from tests import ROOT

_SECTION = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Which job")[2].partition("\n## ")[0]
_, FIRST, *OTHERS = _SECTION.split("\n### ")


def blocks(text: str) -> list[tuple[str, str]]:
    """The kind and the text of each block of code."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
