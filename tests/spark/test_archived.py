"""Drivers of tests map the archive of Spark's classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark import archived

pytestmark = pytest.mark.system


def test_a_driver_maps_the_archive(spark: Any) -> None:
    process = Path("/proc", str(spark.sparkContext._gateway.proc.pid))
    options = (process / "cmdline").read_text().split("\0")
    archives = [option.partition("=")[2] for option in options if option.startswith("-XX:SharedArchiveFile=")]
    if not archives:
        pytest.skip("another worker was still making the archive when this session began: the next run uses it")
    assert archives[0] in (process / "maps").read_text()


def test_one_that_is_given_already_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(archived.OPTIONS, "-XX:SharedArchiveFile=/of/a/user.jsa")
    archived.share_classes()
    assert archived.os.environ[archived.OPTIONS] == "-XX:SharedArchiveFile=/of/a/user.jsa"
