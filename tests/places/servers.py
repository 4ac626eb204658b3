"""Helpers shared by the fixtures of real servers."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from reconciler.core.errors import ConfigError
from tests.demo.lab.servers.server import Server

S = TypeVar("S", bound=Server)


def cannot(request: pytest.FixtureRequest, reason: str) -> NoReturn:
    """Skip the test, or fail it if servers are required."""
    import tests.conftest

    tests.conftest._cannot(reason)
    raise AssertionError("unreachable")


def in_own_folder(request: pytest.FixtureRequest, kind: Callable[[Path], S]) -> Iterator[S]:
    """A server in a folder that the server's user can enter, unlike pytest's. Its data is thrown away."""
    with tempfile.TemporaryDirectory(prefix="reconciler-server-") as folder:
        os.chmod(folder, 0o755)
        try:
            server = kind(Path(folder))
        except ConfigError as error:
            cannot(request, str(error))
        with server:
            yield server
            server.kill()  # no need to write its data down in order
