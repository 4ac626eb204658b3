"""Addresses of stores, of every scheme: a store that contacts nothing, or a refusal that shows no secret."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from reconciler.config.addresses import without_secrets
from reconciler.config.ownership import refuse_unlisted
from reconciler.config.secrets import holds_plain_secret, remember
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.places.registry import SCHEMES, open_store, traits
from tests.fuzz import AS_TYPED, attempt, fuzz, sized, words

ADDRESSES = [
    *("sqlite:///offsets.db", "sqlite:////srv/a%20b.db", "sqlite://", "memory:", "memory:a", "kafka-group:"),
    *("hbase://127.0.0.1:1/offsets?layout=anchored&timeout=5", "hbase://[::1]/t?layout=cloudera"),
    *("hbase://h/cdap_system:log.meta?layout=cdap-logsaver&prefix=100",),
    *("hbase://h/t?layout=cdap-metrics&of_group=g",),
    *("hbase://h/t?layout=cdap-flowlet&id_of=json:$.id&column=d:c",),
    *("hbase://h:99999/t?layout=anchored&transport=framed",),
    *("zookeeper://h1:2181,h2:2181/kafka?layout=consumers", "zookeeper://u:p@h/a?layout=single&of_group=g&number=first"),
    *("postgresql://u:hunter2@h:5432,i/db?sslmode=require&timeout=5", "postgres:///db?host=/tmp&schema=s"),
    *("postgresql://h/db?table=s.t&topic=a&partition=b&offset=c&number=last&newest_by=e", "checkpoint:/srv/clicks"),
    *("files:/srv/offsets?keep=2",),
    *("delta:/srv/t?layout=commit&number=next&lists=all&property=x&field=a.b&walk=9", "delta:s3://b/t?number=last"),
    *("delta:/srv/t?layout=txn&number=last&app_id={group}-{topic}-{partition}&partitions=12",),
    *("delta:/srv/t?layout=columns&number=last&topic=t&partition=p&offset=o&group=g",),
    *("iceberg:lab/db.t?layout=summary&number=next&property=x&branch=b&of_group=g", "iceberg:/srv/t?layout=columns"),
    *("checkpoint:file:///srv/clicks?position=end", "files:webhdfs://127.0.0.1:1/offsets?walk=7", "files:memory://x"),
    *("x:y",),
]  # fmt: skip
CLIENT = {"bootstrap.servers": "127.0.0.1:1"}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_store_has_an_address_here(scheme: str) -> None:
    assert any(address.startswith(f"{scheme}:") for address in ADDRESSES), f"add one of {scheme}: to ADDRESSES"


@sized
def test_any_address_is_a_stores_or_is_refused_with_a_sentence(
    runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def claim(address: str) -> None:
        if address.startswith("python:") or "python:" in address:
            return
        store = attempt(partial(open_store, address, kafka_client=CLIENT), ExitCode.USAGE, longest=AS_TYPED)
        traits(address)
        if store is not None:
            assert "hunter2" not in store.address
            store.close()
        assert list(tmp_path.iterdir()) == [], "an address alone creates nothing"

    fuzz(runs, words(ADDRESSES), claim)


@sized
def test_no_address_shows_its_password(runs: int) -> None:
    def claim(address: str) -> None:
        is_known = address.startswith(("postgresql:/", "zookeeper:/"))
        if is_known and address.count("hunter2") == address.count("u:hunter2@") == 1:
            assert "hunter2" not in without_secrets(address)
        without_secrets(address)
        holds_plain_secret("jobs.store", address)
        remember("jobs.store", "file:/x", "xy")
        attempt(partial(refuse_unlisted, "[jobs] store", address, ()), ExitCode.USAGE, longest=AS_TYPED)

    fuzz(runs, words([*ADDRESSES, "postgresql://u:hunter2@h/db", "zookeeper://u:hunter2@h1,h2/a?layout=single"]), claim)


def test_an_address_of_bytes_that_are_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not valid Unicode"):
        open_store("postgresql://\udcff@h/db")


@pytest.mark.parametrize("user", ["%ff", "%00"])
def test_a_login_whose_bytes_are_no_text_is_refused(user: str) -> None:
    with pytest.raises(ConfigError, match="is wrong"):
        open_store(f"postgresql://{user}@h/db")


@pytest.mark.parametrize("scheme", ["files", "checkpoint"])
def test_a_url_whose_host_cannot_be_read_is_refused(scheme: str) -> None:
    with pytest.raises(ConfigError, match=r"The host of a webhdfs:// URL cannot be read"):
        open_store(f"{scheme}:webhdfs://[2001:db8::1/offsets")


def test_a_login_behind_one_slash_or_three_is_not_shown() -> None:
    assert without_secrets("postgresql:/u:hunter2@h/db") == "postgresql:…"
    assert without_secrets("postgresql:///u:hunter2@h/db") == "postgresql://…"


def test_an_address_within_an_address_is_not_shown() -> None:
    assert without_secrets("postgresql://h/postgresql://u:hunter2@h/db") == "postgresql://…"
    assert without_secrets("postgresql://h/db?host=postgresql://u:hunter2@h/db") == "postgresql://h/db?host=…"
    assert without_secrets("zookeeper://h/a?zookeeper://u:hunter2@h/a?b=c") == "zookeeper://h/a"


@pytest.mark.parametrize("address", ["files:/srv/offsets?keep={}", "hbase://h/t?layout=cdap-logsaver&prefix={}"])
def test_a_number_of_thousands_of_digits_is_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        open_store(address.format("9" * 5_000))
