"""WebHDFS whose DataNode fails: an error is an error, and never the content of a file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from reconciler.core.errors import Refused, Unreachable
from reconciler.places.checkpoint.files import Tree
from reconciler.places.folder import open_folder

CONTENT = b"the content of a file, which is longer than the text of an error. " * 20


class Nodes(ThreadingHTTPServer):
    """A NameNode below ``/webhdfs``, and a DataNode below ``/data`` that fails as often as ``errors`` says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.errors: list[int] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    server: Nodes

    def do_GET(self) -> None:
        if "op=GETFILESTATUS" in self.path:
            self._answer(200, json.dumps({"FileStatus": {"type": "FILE", "length": len(CONTENT)}}).encode())
        elif self.path.startswith("/webhdfs"):
            to = {"Location": f"http://{self.server.address}/data?{self.path.partition('?')[2]}"}
            self._answer(307, b"", to)
        elif self.server.errors:
            said = {"RemoteException": {"exception": "IOException", "message": "Xceiver count exceeds the limit"}}
            self._answer(self.server.errors.pop(0), json.dumps(said).encode())
        else:
            first = int(self.path.partition("offset=")[2].partition("&")[0])
            self._answer(200, CONTENT[first:])

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with Nodes() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "error"), [(500, Unreachable), (403, Refused), (404, Unreachable)])
def test_a_datanodes_error_is_not_taken_for_a_files_content(nodes: Nodes, status: int, error: type[Exception]) -> None:
    url = f"webhdfs://tester@{nodes.address}/folder"
    for read in (Tree(url).read, open_folder(url).read):
        nodes.errors = [status]
        with pytest.raises(error, match=f"a DataNode answered {status}"):
            read("file")
        assert read("file") == CONTENT


def test_a_file_is_read_in_chunks_without_the_text_of_an_error_between(nodes: Nodes) -> None:
    tree = Tree(f"webhdfs://tester@{nodes.address}/folder")
    fs, root = tree.fs, tree.root
    nodes.errors = [500]
    with fs.open(f"{root}/file", "rb") as reading:
        with pytest.raises(OSError, match="a DataNode answered 500"):
            reading.read(100)
        assert reading.read(len(CONTENT)) == CONTENT


NO_LOGIN = [
    type("NoCredentialsError", (Exception,), {})("Unable to locate credentials"),  # s3fs's client
    OSError("Forbidden: b/o\nAnonymous caller does not have storage.objects.list access"),  # gcsfs
    ValueError("Must provide either a connection_string or account_name with credentials!!"),  # adlfs
]


@pytest.mark.parametrize("error", NO_LOGIN)
def test_a_missing_login_is_no_outage_and_leaves_nothing_in_doubt(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    for name in ("info", "find", "pipe_file"):
        monkeypatch.setattr(MemoryFileSystem, name, fail)
    for use in (lambda: open_folder("memory://b/x").publish("a", b""), Tree("memory://b/x").is_empty):
        with pytest.raises(Refused, match="may not be used by this user"):
            use()
