"""Which PySpark is installed; and Python packages that the tests' own environment lacks, kept beside the jars."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

import pytest

from reconciler.artifacts import cache_directory

PYSPARK = tuple(map(int, version("pyspark").split(".")[:2]))
"""The installed PySpark's version, such as (4, 2)."""

TIMEOUT_S = 900
OURS = ("confluent-kafka>=2.12,<3", "happybase>=1.2,<2", "tenacity>=9,<10", "prometheus-client", "fsspec")
STATE_IN_PYTHON = ("pandas>=2.2,<3", "pyarrow>=18", "protobuf")
"""What PySpark needs for state in Python functions, ``transformWithState`` included."""


def since_pyspark(major: int, minor: int) -> pytest.MarkDecorator:
    """For tests of what older versions of PySpark lack."""
    return pytest.mark.skipif((major, minor) > PYSPARK, reason=f"PySpark has this since {major}.{minor}")


def packages(name: str, *requirements: str) -> Path:
    """A directory with these packages, for PYTHONPATH."""
    return _made(name, lambda place: [[sys.executable, *_pip("install", "--target", str(place), *requirements)]])


def python_with(name: str, *requirements: str) -> Path:
    """The Python of an environment of its own that has these packages."""

    def steps(place: Path) -> list[list[str]]:
        return [
            [sys.executable, "-m", "venv", str(place)],
            [str(place / "bin/python"), *_pip("install", *requirements)],
        ]

    return _made(name, steps, moves=False) / "bin/python"


def python_with_pyspark(version: str) -> Path:
    """The Python of an environment with this PySpark, and what the product and state in Python need."""
    return python_with(f"pyspark-{version}-state", f"pyspark=={version}", *OURS, *STATE_IN_PYTHON)


def _pip(*arguments: str) -> list[str]:
    return ["-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]


def _made(name: str, steps, *, moves: bool = True) -> Path:  # type: ignore[no-untyped-def]
    """The complete result of ``steps``, marked when it is done. One process makes it at a time."""
    place = cache_directory() / f"python-{name}"
    mark = place.with_name(f".{place.name}.whole")
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f".{place.name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if mark.exists() and place.exists():
            return place
        shutil.rmtree(place, ignore_errors=True)
        # An environment knows its own path, and cannot be moved once it is whole.
        making = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.")) if moves else place
        for step in steps(making):
            said = subprocess.run(step, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            if said.returncode != 0:
                shutil.rmtree(making, ignore_errors=True)
                _cannot(f"{name} cannot be installed here: {said.stderr.strip().splitlines()[-1:]}")
        if moves:
            making.rename(place)
        mark.touch()
    return place


def _cannot(reason: str) -> NoReturn:
    if os.environ.get("RECONCILER_REQUIRE_SYSTEM") == "1":
        pytest.fail(f"system tests are required here: {reason}", pytrace=False)
    pytest.skip(reason)
