"""A password in an address of any store, valid or malformed, appears in no output and in no file of any command."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from reconciler.cli.main import main
from reconciler.config.secrets import KNOWN
from tests.config.planted import found_in, found_in_files

SECRET = "pl@nted/s+cret&more"
ADDRESSES = {
    "postgresql": "postgresql://me:{}@127.0.0.1:1/db?timeout=0.2",
    "postgresql, as a parameter": "postgresql://127.0.0.1:1/db?user=me&password={}&timeout=0.2",
    "postgresql, sslpassword": "postgresql://127.0.0.1:1/db?sslpassword={}&timeout=0.2",
    "postgresql, no port": "postgresql://me:{}@127.0.0.1:port/db",
    "postgresql, nonsense": "postgresql://me:{}@127.0.0.1:1/db?nonsense=1",
    "postgresql, half a table": "postgresql://me:{}@127.0.0.1:1/db?table=x",
    "postgresql, no bracket": "postgresql://me:{}@[::1/db",
    "postgres, short": "postgres://me:{}@",
    "zookeeper": "zookeeper://me:{}@127.0.0.1:1/kafka?layout=consumers&timeout=0.2",
    "zookeeper, no layout": "zookeeper://me:{}@127.0.0.1:1/kafka",
    "zookeeper, no host": "zookeeper://me:{}@/kafka?layout=single",
    "zookeeper, no port": "zookeeper://me:{}@h:port/kafka?layout=single",
    "hbase": "hbase://me:{}@127.0.0.1:1/table?layout=cloudera",
    "hbase, as a parameter": "hbase://127.0.0.1:1/table?layout=cloudera&password={}",
    "files": "files:webhdfs://me:{}@127.0.0.1:1/offsets",
    "files, no such system": "files:nosuchfs://me:{}@127.0.0.1:1/offsets",
    "files, a parameter": "files:webhdfs://me:{}@127.0.0.1:1/offsets?walk=x",
    "checkpoint": "checkpoint:webhdfs://me:{}@127.0.0.1:1/checkpoint",
    "checkpoint, a parameter": "checkpoint:webhdfs://me:{}@127.0.0.1:1/checkpoint?x=1",
    "kafka-group": "kafka-group:?password={}",
    "no such store": "nosuch://me:{}@127.0.0.1:1/x",
    "none at all": "{}",
}
CONFIG = """
[clusters.a]
[clusters.b]
bootstrap_servers = "127.0.0.1:1"
[search]
deadline = "100ms"
[[jobs]]
home = "a"
name = "clicks"
group = "readers"
topics = ["events"]
offsets = "STORE"
"""
COMMANDS = {"anchors export": ["anchors", "export"], "config check": ["config", "check"]}
"""What opens a store first, and what explains and tries all that a configuration names."""


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    yield
    KNOWN.clear()


def config(folder: Path, address: str) -> Path:
    text = CONFIG.replace("STORE", address)
    path = folder / "reconciler.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("address", ADDRESSES.values(), ids=ADDRESSES)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_addresses_password_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, address: str
) -> None:
    """The log's last net is taken away: nothing may lean on it."""
    monkeypatch.setattr(type(KNOWN), "add", lambda *_: None)
    monkeypatch.setenv("STORE_PASSWORD", quote(SECRET, safe=""))
    path = config(tmp_path, address.replace("{}", "${STORE_PASSWORD}"))
    code = main([*COMMANDS[command], "-c", str(path), "--debug"])
    said = capsys.readouterr()
    assert code in (2, 6), said.err
    assert found_in(said.out + said.err, [SECRET]) == []
    assert found_in_files(tmp_path, [SECRET]) == {}


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_whole_address_out_of_a_file_is_as_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log_format: str
) -> None:
    (tmp_path / "address").write_text(ADDRESSES["postgresql"].replace("{}", quote(SECRET, safe="")))
    path = config(tmp_path, f"file:{tmp_path / 'address'}")
    code = main(["--debug", "--log-format", log_format, "anchors", "export", "-c", str(path)])
    said = capsys.readouterr()
    assert code == 6
    assert found_in(said.out + said.err, [SECRET]) == []


def test_a_bug_shows_no_secret_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only redaction helps here: the exception is a library's, and holds the secret that the library was given."""
    monkeypatch.setenv("STORE_PASSWORD", quote(SECRET, safe=""))
    path = config(tmp_path, ADDRESSES["postgresql"].replace("{}", "${STORE_PASSWORD}"))

    def broken(*_: object, **__: object) -> None:
        login = base64.b64encode(f"me:{SECRET}".encode()).decode()
        raise RuntimeError(f"no route to me:{SECRET}@h, Basic {login}, ?p={quote(SECRET)}")

    monkeypatch.setattr("reconciler.places.registry.open_store", broken)
    assert main(["anchors", "export", "-c", str(path)]) == 1
    with pytest.raises(RuntimeError) as raised:
        main(["--debug", "anchors", "export", "-c", str(path)])
    sys.excepthook(raised.type, raised.value, raised.tb)
    said = capsys.readouterr().err
    assert "no route to me:${STORE_PASSWORD}@h" in said
    assert found_in(said, [SECRET]) == []


def test_the_search_for_secrets_finds_them() -> None:
    login = base64.b64encode(f"me:{SECRET}".encode()).decode()
    for text in (
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        login,
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ):
        assert found_in(f"x={text};", [SECRET]) == [SECRET]
