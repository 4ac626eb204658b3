"""A checkpoint at a URL with a login, of a job with a sink: every request has the login."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec.implementations.local import LocalFileSystem

from reconciler.config.file import load_config
from reconciler.failover.check import check
from reconciler.failover.checkpoint.clone import clone
from tests.failover.sinks.world import Query, query

__all__ = ["query"]


class WithLogin(LocalFileSystem):
    """A file system of another machine that lets one user in."""

    protocol = "withlogin"
    cachable = False

    def __init__(self, *given: Any, user: str = "", **more: Any) -> None:
        super().__init__(*given, **more)
        self.user = user

    @classmethod
    def _get_kwargs_from_urls(cls, path: str) -> dict[str, str]:
        return {"user": urlsplit(path).netloc.rpartition("@")[0]}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(urlsplit(str(path)).path if "://" in str(path) else path)


def guarded(name: str) -> Callable[..., Any]:
    real = getattr(LocalFileSystem, name)

    def call(fs: WithLogin, *given: Any, **more: Any) -> Any:
        if fs.user != "me:secret":
            raise PermissionError("a login is needed")
        return real(fs, *given, **more)

    return call


for _name in ("ls", "info", "exists", "_open"):
    setattr(WithLogin, _name, guarded(_name))


def test_a_clone_looks_for_the_state_with_the_checkpoints_login(query: Query) -> None:
    fsspec.register_implementation("withlogin", WithLogin, clobber=True)
    url, file = f"withlogin://me:secret@host{query.files.path}", query.folder / "reconciler.toml"
    query.config()
    file.write_text(file.read_text().replace(f'"checkpoint:{query.files.path}"', '"${CHECKPOINT}"'))
    config = load_config(file, {"CHECKPOINT": f"checkpoint:{url}"})
    known = check(config, config.jobs, query.outside).plan
    made = clone(url, str(query.folder / "copy"), known, config=config, outside=query.outside)
    assert (made.batch, made.sinks) == (3, 1)
    assert "secret" not in made.path
