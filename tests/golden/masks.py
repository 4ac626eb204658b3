"""What formats hide, so that a reworded sentence changes the goldens of words only.

A plan's details are prose, and hashes cover them. Those goldens show <WORDS> and <HASH>;
``formats/exact`` holds a plan and a signature to the byte, whose prose is fixed.
"""

from __future__ import annotations

import json
import re

_WORDS = re.compile(r'"(detail|reason)":( ?)"((?:[^"\\]|\\.)*)"')
_HASH = re.compile(r'"(sha256|plan_sha256|store_id)":( ?)"(?:[0-9a-f]{64}|[0-9a-f]{32})"')
_HELP = re.compile(r"^# HELP (\S+) (.*)\n", re.M)
_OF_THE_PROCESS = re.compile(r"^(?:# \w+ )?(?:process|python)_.*\n", re.M)


def without_words(text: str) -> str:
    """A plan or a snapshot without prose, and without the hashes that cover it."""
    return _HASH.sub(r'"\1":\2"<HASH>"', _WORDS.sub(r'"\1":\2"<WORDS>"', text))


def without_digest(names: str) -> str:
    """A hook's variables without the digest of the start, which covers its version."""
    return re.sub(r"(?m)^(RECONCILER_START_SHA256)=[0-9a-f]{64}$", r"\1=<HASH>", names)


def details(plan: str) -> str:
    """The prose of a plan, a line for every partition."""
    rows = [(job["name"], row) for job in json.loads(plan)["jobs"] for row in job["partitions"]]
    return "".join(
        f"{name} {row['topic']}-{row['partition']} {row['finding']}: {row['detail']}\n" for name, row in rows
    )


def samples(exposition: str) -> str:
    """Metrics of this product, without their descriptions."""
    return _HELP.sub("", _OF_THE_PROCESS.sub("", exposition))


def descriptions(exposition: str) -> str:
    """What the metrics of this product say they are."""
    return "".join(f"{name}\n    {text}\n" for name, text in _HELP.findall(_OF_THE_PROCESS.sub("", exposition)))
