"""Ids and times in Avro: every value is read by its schema, and what is missing for that is said, never "no id"."""

from __future__ import annotations

import json
import logging
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.config.avro import Registry, registry_at
from reconciler.config.file import load_config
from reconciler.config.identity import IdentitySettings, identity_from_settings, settings_of
from reconciler.core.anchors import Identity, fingerprint
from reconciler.core.errors import ConfigError, ExitCode, ReconcilerError
from tests.config.configurations import LEAST, Load
from tests.config.registry import AT_US, FIELDS, GUID, LOGIN, WHOLE, SchemaRegistry, framed, in_avro
from tests.memory_log import MemoryRecord

pytest.importorskip("fastavro")
CLIENT = "confluent_kafka.schema_registry"
BY_ID = [("__value_schema_id", b"\0\0\0\0\7")]
BY_GUID = [("__value_schema_id", b"\1" + GUID.bytes)]


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    pytest.importorskip(CLIENT)
    with SchemaRegistry() as served:
        yield served


def identity(url: str = "", schema: str = "none", **more: str) -> Identity:
    settings = {"id": "avro:$.order_id", "schema": schema} | more
    return identity_from_settings(IdentitySettings(**settings, registry=(("url", url),) if url else ()))  # type: ignore[arg-type]


def id_in(found: Identity, value: bytes | None, *headers: tuple[str, bytes]) -> bytes | None:
    assert found.id_of is not None
    return found.id_of(MemoryRecord(3, 1234, b"k", value, headers))


def fault_of(url: str, schema: int = 7, **more: str) -> ReconcilerError:
    with pytest.raises(ReconcilerError) as caught:
        id_in(identity(url, **more), framed(schema, in_avro()))
    return caught.value


# ---------------------------------------------------------------- what is read


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.order_id", b"o-17"),
        ("$.number", b"17"),
        ("$.key", str(GUID).encode()),
        ("$.raw", b"\xff\x00"),
        ("$.items[0].sku", b"s"),
        ("$.items", b'[{"sku":"s"}]'),
        ("$.labels['trace.id']", b"t-1"),
        ("$.missing", None),
    ],
)
def test_an_id_is_read_by_the_schema_that_the_frame_names(
    registry: SchemaRegistry, path: str, expected: bytes | None
) -> None:
    assert id_in(identity(registry.url, id=f"avro:{path}"), framed(7, in_avro())) == expected


@pytest.mark.parametrize("headers", [BY_ID, BY_GUID], ids=["id", "guid"])
def test_a_header_may_name_the_schema_instead(registry: SchemaRegistry, headers: list[tuple[str, bytes]]) -> None:
    assert id_in(identity(registry.url), in_avro(), *headers) == b"o-17"


def test_a_schema_is_asked_for_once_also_after_a_copy_to_another_process(registry: SchemaRegistry) -> None:
    found = identity(registry.url)
    copy = pickle.loads(pickle.dumps(found))
    assert [id_in(each, framed(7, in_avro(order_id=name))) for each in (found, copy) for name in "xy"] == [
        b"x",
        b"y",
    ] * 2
    assert registry.asked == ["/schemas/ids/7", "/subjects/items/versions/1"]


@pytest.mark.parametrize("place", ["prefix", "header"])
def test_what_confluents_own_serializer_writes_is_read(place: str) -> None:
    registries = pytest.importorskip(CLIENT)
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    mock = registries.SchemaRegistryClient.new_client({"url": "mock://"})
    own = {"schema.id.serializer": getattr(registries, f"{place}_schema_id_serializer")}
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext("orders", MessageField.VALUE, headers)
    value = AvroSerializer(mock, json.dumps(WHOLE), conf=own)(FIELDS, context)
    registry_at((("url", f"mock://{place}"),))._client = mock
    assert (id_in(identity(f"mock://{place}"), value, *headers), len(headers)) == (b"o-17", place == "header")


@pytest.mark.parametrize(("path", "unit", "ms"), [("$.at", "s", AT_US // 1000), ("$.seconds", "s", 1_700_000_000_000)])
def test_a_time_has_the_unit_of_its_schema_or_else_of_the_setting(path: str, unit: str, ms: int) -> None:
    found = identity(schema=json.dumps(WHOLE), timestamp=f"avro:{path}", unit=unit)
    assert found.timestamp_of(MemoryRecord(3, 1234, b"k", in_avro())) == ms
    assert not found.record_time


@pytest.mark.parametrize(
    ("frame", "value"), [("none", in_avro()), ("confluent", framed(99, in_avro())), ("confluent", in_avro())]
)
def test_a_schema_of_the_job_needs_no_registry(frame: str, value: bytes) -> None:
    assert id_in(identity(schema=json.dumps(WHOLE), frame=frame), value) == b"o-17"


def test_without_a_value_there_is_no_id_and_nothing_to_say(caplog: pytest.LogCaptureFixture) -> None:
    assert id_in(identity("http://127.0.0.1:1"), None) is None
    assert not caplog.records


# ---------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"order_id": 17}', "at offset 3 has no schema id, in front of its value or in a header"),
        (framed(7, in_avro() + b"xy"), "does not fit schema 7 of http://127.0.0.1:"),
        (framed(7, in_avro()[:-9]), "does not fit schema 7 of http://127.0.0.1:"),
    ],
)
def test_a_value_that_does_not_fit_is_named_once(
    registry: SchemaRegistry, caplog: pytest.LogCaptureFixture, value: bytes, why: str
) -> None:
    found = identity(registry.url)
    assert [id_in(found, value), id_in(found, value), id_in(found, framed(7, in_avro()))] == [None, None, b"o-17"]
    (said,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert why in said
    assert "counts as a record without an id" in said
    assert "correct [registry] url, or schema and frame of [jobs.identity]" in said


def test_a_frame_that_the_job_does_not_name_is_said(caplog: pytest.LogCaptureFixture) -> None:
    assert id_in(identity(schema=json.dumps(WHOLE)), framed(7, in_avro())) is None
    assert "does not fit [jobs.identity] schema" in caplog.text


@pytest.mark.parametrize(
    ("schema", "code", "message", "hint"),
    [
        (11, ExitCode.UNREACHABLE, "There is no schema 11 of the registry http://127.0.0.1:", "under the same id"),
        (8, ExitCode.USAGE, "schema 8 of the registry http://127.0.0.1:", '"json:$.path"'),
        (9, ExitCode.USAGE, "is not an Avro schema: UnknownType", "Let its owner correct it"),
    ],
)
def test_a_schema_that_cannot_be_used_is_an_error(
    registry: SchemaRegistry, schema: int, code: ExitCode, message: str, hint: str
) -> None:
    found = fault_of(registry.url, schema)
    assert (found.exit_code, found.retryable) == (code, False)
    assert message in found.message
    assert hint in str(found.hint)


def test_a_registry_that_is_down_is_not_asked_again_for_a_while(registry: SchemaRegistry) -> None:
    now = [0.0]
    with SchemaRegistry(status=503) as down:
        client = Registry(
            (("max.retries", "0"), ("url", down.url.replace("//", f"//{LOGIN}@"))), monotonic=lambda: now[0]
        )
        for now[0] in (0.0, 29.0, 31.0):
            with pytest.raises(ReconcilerError, match=re.escape("did not answer (HTTP 503")) as caught:
                client.schema(b"\0\0\0\0\7")
        assert (caught.value.exit_code, caught.value.retryable) == (ExitCode.UNREACHABLE, True)
        assert down.url in caught.value.message, "without the login"
        assert len(down.asked) == 2
    assert "did not answer (ConnectError" in fault_of("http://127.0.0.1:1").message


def test_a_login_is_the_clients_and_a_wrong_one_is_named() -> None:
    pytest.importorskip(CLIENT)
    with SchemaRegistry(login=LOGIN) as served:
        settings = IdentitySettings(
            id="avro:$.order_id", registry=(("basic.auth.user.info", LOGIN), ("url", served.url))
        )
        assert id_in(identity_from_settings(settings), framed(7, in_avro())) == b"o-17"
        found = fault_of(served.url)
    assert found.message == f"The schema registry {served.url} refused this login (HTTP 401)."
    assert not found.retryable


def test_what_is_no_registry_is_named() -> None:
    pytest.importorskip(CLIENT)
    with SchemaRegistry(status=404) as other:
        assert fault_of(other.url).message == f"The server at {other.url} is not a schema registry (HTTP 404)."


@pytest.mark.parametrize("missing", ["fastavro", CLIENT])
def test_a_missing_library_is_named_with_its_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    found = identity("http://127.0.0.1:2") if missing == CLIENT else identity(schema=json.dumps(WHOLE))
    with pytest.raises(ConfigError) as caught:
        id_in(found, framed(7, in_avro()) if missing == CLIENT else b"\0")
    assert 'pip install "failover-offset-reconciler[avro]"' in str(caught.value.hint)


# ---------------------------------------------------------------- the configuration


REGISTRY = '[registry]\nurl = "http://r:8081,https://s/api"\n"basic.auth.user.info" = "${LOGIN}"\n"max.retries" = 1\n'
AVRO = '[jobs.identity]\nid = "avro:$.order_id"\n'


def test_the_registry_of_the_file_is_that_of_its_jobs(load: Load) -> None:
    found = settings_of(load(f"{REGISTRY}{LEAST}{AVRO}", LOGIN=LOGIN).jobs[0].identity)
    assert dict(found.registry) == {
        "url": "http://r:8081,https://s/api",
        "basic.auth.user.info": LOGIN,
        "max.retries": "1",
    }
    assert LOGIN not in repr(found)


def test_a_schema_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(WHOLE))
    (tmp_path / "r.toml").write_text(f'{LEAST}{AVRO}schema = "{tmp_path / "order.avsc"}"\n')
    assert id_in(load_config(tmp_path / "r.toml", {}).jobs[0].identity, in_avro()) == b"o-17"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{LEAST}{AVRO}", 'clicks.identity] "avro:" needs a schema, and none is named'),
        (
            f"{REGISTRY.replace('${LOGIN}', LOGIN)}{LEAST}",
            "[registry] basic.auth.user.info holds a secret in plain text",
        ),
        (f'[registry]\nurl = "r:8081"\n{LEAST}', "[registry] url is not the address of a schema registry"),
        (f"[registry]\ntimeout = 5\n{LEAST}", "[registry] url is not the address of a schema registry"),
        (f'[registry]\nurl = "http://r"\ntimeout = "5s"\n{LEAST}', "[registry] timeout is not a number"),
        (f'{LEAST}{AVRO}schema = "no/such.avsc"', "clicks.identity] schema cannot be read"),
        (f"{LEAST}{AVRO}schema = '{{'", "clicks.identity] schema cannot be read"),
        (
            f"{LEAST}[jobs.identity]\nschema = '{{}}'",
            "clicks.identity] schema is for Avro, and nothing",
        ),
        (f'{LEAST}[jobs.identity]\nid = "protobuf:$.id"', '"protobuf:$.id" has a name or an index'),
        (f'{REGISTRY}{LEAST}[jobs.identity]\nid = "avro:order_id"', 'write it like "avro:$.meta.id"'),
    ],
)
def test_a_fault_is_named(load: Load, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, LOGIN=LOGIN)
    assert message in " ".join(each.message for each in (caught.value, *caught.value.others))


# ---------------------------------------------------------------- fingerprints


def test_what_a_header_names_has_no_frame_to_leave_out() -> None:
    value, found = b"\0\0\0\0\7rest", identity_from_settings(IdentitySettings(id="key", frame="confluent"))
    plain = MemoryRecord(3, 1, value, value)
    named = MemoryRecord(3, 1, value, value, (("__key_schema_id", b"\1"), ("__value_schema_id", b"\1")))
    assert (found.fingerprint_of(plain), id_of_key(found, plain)) == (fingerprint(b"rest", b"rest"), b"rest")
    assert (found.fingerprint_of(named), id_of_key(found, named)) == (fingerprint(value, value), value)


def id_of_key(found: Identity, record: MemoryRecord) -> bytes | None:
    assert found.id_of is not None
    return found.id_of(record)
