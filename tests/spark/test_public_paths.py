"""The import paths and call signatures that users' jobs rely on."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.waiting import LIMIT_S

PUBLIC = {
    "reconciler.spark": ["job"],
    "reconciler.spark.started": ["Job", "job"],
    "reconciler.spark.session": ["connector_jars", "require_fitting", "with_kafka"],
    "reconciler.spark.audit": ["AuditResult", "Columns", "Output", "audit"],
    "reconciler.spark.batches": [
        "RangeBatches",
        "at_least_once",
        "at_most_once",
        "exactly_once",
        "Caps",
        "Policy",
        "OffsetRange",
        "PostgresTransaction",
        "PostgresUpsert",
        "HashNamedFiles",
    ],
}

SIGNATURES: dict[tuple[str, str], tuple[tuple[str, ...], dict[str, Any]]] = {
    ("reconciler.spark.batches", "RangeBatches"): (
        ("spark", "topics", "group", "bootstrap_servers"),
        {"kafka_client": None, "timestamp": "record", "id": "none", "unit": "ms", "frame": "none"}
        | {"store": None, "options": None, "job": None},
    ),
    ("reconciler.spark.audit", "audit"): (
        ("spark", "plans", "destination"),
        {"source": None, "output": None, "id": "none", "job": None, "unique": False, "exactly_once": False}
        | {"since_ms": None, "now_ms": None}
        | {"destination_options": None, "source_options": None},
    ),
}
"""Of each function, the arguments that must be given, and those that may be left out with their defaults."""
OTHERS = {
    "RangeBatches": {"caps", "policy", "now_ms"},
    "audit": set[str](),
}
"""Further optional arguments, whose defaults are objects."""
POSITIONAL = {"RangeBatches": ["spark"], "audit": ["spark", "plans"]}


@pytest.mark.parametrize("path", PUBLIC)
def test_every_public_name_can_be_imported(path: str) -> None:
    module = importlib.import_module(path)
    assert [name for name in PUBLIC[path] if not hasattr(module, name)] == []


@pytest.mark.parametrize("place", SIGNATURES, ids=lambda place: place[1])
def test_a_public_function_takes_the_documented_keyword_arguments(place: tuple[str, str]) -> None:
    path, name = place
    required, optional = SIGNATURES[place]
    function: Callable[..., Any] = getattr(importlib.import_module(path), name)
    parameters = inspect.signature(function).parameters
    defaults = {each.name: each.default for each in parameters.values() if each.default is not inspect.Parameter.empty}
    assert [each for each in parameters if each not in defaults] == list(required)
    assert {each: defaults[each] for each in optional} == optional
    assert set(defaults) == set(optional) | OTHERS[name]
    positional = [each.name for each in parameters.values() if each.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert positional == POSITIONAL[name]


def test_a_job_is_read_without_pyspark() -> None:
    """Also when pyspark cannot be imported at all: the import fails in this process if anything asks for it."""
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from reconciler.spark import job\n"
        "assert not [name for name in sys.modules if name.startswith('pyspark.')]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT_S)
