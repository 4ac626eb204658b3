"""HDFS for the whole run, and stores of manifests in it, on this machine and in memory, for the behaviour suite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.core.errors import ConfigError, Unreachable
from reconciler.places.registry import open_store
from tests.buckets import new_bucket
from tests.places.servers import cannot
from tests.places.store_cases import Case

if TYPE_CHECKING:
    from tests.demo.lab.servers.hdfs import Hdfs


@pytest.fixture(scope="session")
def hdfs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """The run's HDFS. Tests share it, each with its own folder."""
    from tests.demo.lab.archives import archive_hdfs
    from tests.demo.lab.servers.hdfs import Hdfs
    from tests.demo.lab.servers.jars import hdfs_jars

    try:
        jars = hdfs_jars()
    except (ConfigError, Unreachable) as error:
        cannot(request, str(error))
    archive_hdfs(jars)
    with Hdfs(tmp_path_factory.mktemp("hdfs"), jars) as server:
        yield server


def files_case(url: str) -> Case:
    store = open_store(f"files:{url}")
    store.create()
    store.close()
    return Case(lambda: open_store(f"files:{url}"), ("events", "a.events"), has_stays=True)


@pytest.fixture
def files_local_case(tmp_path: Path) -> Case:
    return files_case(str(tmp_path / "offsets"))


@pytest.fixture
def files_memory_case() -> Case:
    return files_case(f"memory://{uuid.uuid4().hex}/offsets")


@pytest.fixture
def files_hdfs_case(hdfs: Hdfs) -> Case:
    return files_case(hdfs.url(f"/{uuid.uuid4().hex}"))


@pytest.fixture
def files_s3_case() -> Case:
    return files_case(f"{new_bucket('s3')}/offsets")


@pytest.fixture
def files_gs_case() -> Case:
    return files_case(f"{new_bucket('gs')}/offsets")


@pytest.fixture
def files_abfs_case() -> Case:
    return files_case(f"{new_bucket('abfs')}/offsets")
