"""TLS, SCRAM and client certificates: the right secrets open every command, a wrong one none, and none is shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.core.errors import Refused
from reconciler.kafka.reader import KafkaLogReader
from reconciler.ports import ReadRequest, TopicPartition
from tests.kafka.bulk.readers import answered, bulk_reader, seen
from tests.kafka.security.certificates import CLIENT
from tests.kafka.security.secured import USER, Acl, Secured, client_table
from tests.sizes import sampled
from tests.world import CommandResult, World, run_process, source_record

pytestmark = pytest.mark.system


def arguments(world: World, command: str, config: Path) -> tuple[object, ...]:
    return {
        "plan": ("plan", "-c", config, "--to", "b"),
        "apply": ("apply", world.plan_file, "-c", config, "--yes"),
        "hook": ("hook", "-c", config, "--plans", world.folder / "plans"),
        "export": ("anchors", "export", "-c", config),
    }[command]


def everything(world: World) -> list[Acl]:
    """What a user needs for every command and store."""
    topics = [Acl(operation, "topic", world.mirrored) for operation in ("Read", "DescribeConfigs")]
    group = [Acl(operation, "group", world.group) for operation in ("Read", "Delete")]
    return [*topics, Acl("Describe", "topic", world.topic), *group]


# ---------------------------------------------------------------- the right secret

Entry = Callable[[Secured, Path, pytest.MonkeyPatch], tuple[str, str, dict[str, str]]]


def by_environment(secured: Secured, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, dict[str, str]]:
    monkeypatch.setenv("KAFKA_B_PASSWORD", secured.password)
    return USER, secured.sasl, {**secured.scram, "sasl.password": "${KAFKA_B_PASSWORD}"}


def by_file(secured: Secured, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, dict[str, str]]:
    path = folder / "password"
    path.write_text(secured.password + "\n")
    return USER, secured.sasl, {**secured.scram, "sasl.password": f"file:{path}"}


def by_certificate(secured: Secured, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, dict[str, str]]:
    monkeypatch.setenv("KEY_PASSWORD", secured.certificates.password)
    return CLIENT, secured.tls, {**secured.mutual, "ssl.key.password": "${KEY_PASSWORD}"}


def by_key_in_settings(
    secured: Secured, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str, dict[str, str]]:
    pem = f"file:{secured.certificates.client}"
    texts = {"ssl.ca.pem": f"file:{secured.certificates.authority}", "ssl.certificate.pem": pem, "ssl.key.pem": pem}
    return CLIENT, secured.tls, {"security.protocol": "SSL", **texts, "ssl.key.password": secured.certificates.password}


def by_key_store(secured: Secured, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, dict[str, str]]:
    store = str(secured.certificates.client_store)
    path = folder / "store-password"
    path.write_text(secured.certificates.password)
    keys = {"ssl.keystore.location": store, "ssl.keystore.password": f"file:{path}"}
    trusted = {"ssl.ca.location": str(secured.certificates.authority)}
    return CLIENT, secured.tls, {"security.protocol": "SSL", **trusted, **keys}


def by_another_login(mechanism: str) -> Entry:
    def entry(secured: Secured, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, dict[str, str]]:
        monkeypatch.setenv("KAFKA_B_PASSWORD", secured.password)
        return USER, secured.logins, {**secured.login(mechanism), "sasl.password": "${KAFKA_B_PASSWORD}"}

    return entry


def by_token(secured: Secured, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, dict[str, str]]:
    monkeypatch.setenv("CLIENT_SECRET", secured.password)
    return USER, secured.logins, {**secured.token, "sasl.oauthbearer.client.secret": "${CLIENT_SECRET}"}


def by_function(secured: Secured, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, dict[str, str]]:
    return USER, secured.logins, secured.own_token(monkeypatch)


@pytest.mark.parametrize(
    ("entry", "store"),
    sampled(
        [
            (by_environment, "sqlite"),
            (by_file, "kafka-group"),
            (by_certificate, "kafka-group"),
            (by_key_in_settings, "sqlite"),
            (by_key_store, "sqlite"),
            (by_another_login("SCRAM-SHA-256"), "sqlite"),
            (by_another_login("PLAIN"), "sqlite"),
            (by_token, "kafka-group"),
            (by_function, "kafka-group"),
        ],
        keep=3,
    ),
    ids=lambda part: getattr(part, "__name__", part),
)
def test_with_the_right_secret_a_job_is_failed_over_and_back(
    secured: Secured, secured_world: World, monkeypatch: pytest.MonkeyPatch, entry: Entry, store: str
) -> None:
    world = secured_world
    user, address, settings = entry(secured, world.folder, monkeypatch)
    world.deliver(20)
    if store == "kafka-group":
        world.address = "kafka-group:"
        synced = replace(source_record(9).stored, offset=3)  # as MirrorMaker's sync leaves it
        world.save({0: synced}, topic=world.mirrored)
    else:
        world.processed(9)
    secured.allow(user, everything(world))
    config = world.config(bootstrap=address, extra=client_table(settings), to="b")

    ran: list[CommandResult] = []

    def run(command: str) -> int:
        ran.append(world.run("--debug", *arguments(world, command, config)))
        return ran[-1].code

    assert run("plan") == 3, ran[-1].output
    world.plan(config)
    assert run("apply") == 0, ran[-1].output
    right = {0: world.offset_of(9) + 1}
    assert world.offsets() == right
    assert run("plan") == 0, ran[-1].output
    assert run("hook") == 0, ran[-1].output
    assert world.offsets() == right
    assert all(secured.planted_in(ended.output) == [] for ended in ran)
    kept = [path.read_text() for path in world.folder.rglob("*.json")]
    assert kept
    assert secured.planted_in("".join(kept)) == []


# ---------------------------------------------------------------- a wrong password


@pytest.mark.parametrize("store", ["sqlite", "kafka-group"])
def test_no_command_does_anything_with_a_wrong_password(secured: Secured, secured_world: World, store: str) -> None:
    world = secured_world
    world.deliver(12)
    if store == "kafka-group":
        world.address = "kafka-group:"
        world.save({0: source_record(5).stored}, topic=world.mirrored)
    else:
        world.processed(5)
    right = world.config(to="b")
    world.plan(right)
    settings = {**secured.scram, "sasl.password": secured.wrong_password}
    wrong = world.config(bootstrap=secured.sasl, extra=client_table(settings), to="b")

    def refused(command: str) -> None:
        before = world.rows(), contents(world.folder)
        ended = world.run(*arguments(world, command, wrong))
        assert ended.code == 6, f"{command}: {ended.output}"
        assert ended.out == ""
        (line,) = ended.err.splitlines()
        assert f"refused the login of user '{USER}'" in line
        assert (world.rows(), contents(world.folder)) == before

    for command in ("plan", "apply", "hook"):
        refused(command)
    assert world.run(*arguments(world, "apply", right)).code == 0
    if store == "kafka-group":
        refused("export")
    else:
        assert world.run(*arguments(world, "export", wrong)).code == 0, "it has no business with the cluster"


def contents(folder: Path) -> dict[Path, bytes]:
    """The plans and snapshots in a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*.json")}


def test_a_refused_login_ends_a_call_long_before_its_time_is_up(secured: Secured) -> None:
    client = {"bootstrap.servers": secured.sasl, **secured.scram, "sasl.password": secured.wrong_password}
    reader = KafkaLogReader(client, timeout_s=300)
    began = time.monotonic()
    try:
        with pytest.raises(Refused, match="refused the login"):
            reader.describe(["events"])
    finally:
        reader.close()
    assert time.monotonic() - began < 150


# ---------------------------------------------------------------- many partitions, without librdkafka


@pytest.mark.parametrize("door", sampled(["scram", "certificate", "SCRAM-SHA-256", "PLAIN"], keep=2))
def test_many_partitions_are_read_with_the_same_logins(secured: Secured, secured_world: World, door: str) -> None:
    world = secured_world
    world.deliver(3)
    for user in (USER, CLIENT):
        secured.allow(user, everything(world))
    address, settings = {
        "scram": (secured.sasl, secured.scram),
        "certificate": (secured.tls, secured.mutual),
    }.get(door, (secured.logins, secured.login(door)))
    client = {"bootstrap.servers": address, **settings}
    place = TopicPartition(world.mirrored, 0)
    with closing(bulk_reader(client)) as reader, closing(KafkaLogReader(client)) as other:
        requests = [ReadRequest(place, 0, 10)]
        found, read = answered(reader, requests), other.read(requests)
    assert len(read[0].records) > 0
    assert seen(found[0]) == seen(read[0])


@pytest.mark.parametrize("wrong", ["password", "authority"])
def test_a_wrong_login_or_certificate_reads_nothing(secured: Secured, secured_world: World, wrong: str) -> None:
    secured_world.deliver(3)
    secured.allow(USER, everything(secured_world))
    change = {
        "password": {"sasl.password": secured.wrong_password},
        "authority": {"ssl.ca.location": str(secured.certificates.stranger)},
    }[wrong]
    client = {"bootstrap.servers": secured.sasl, **secured.scram, **change}
    with closing(bulk_reader(client)) as reader:
        assert answered(reader, [ReadRequest(TopicPartition(secured_world.mirrored, 0), 0, 10)]) == {}


# ---------------------------------------------------------------- what is shown


@pytest.mark.parametrize(("log_format", "password"), [("text", "wrong"), ("json", "right")])
def test_no_secret_is_shown_even_with_all_that_the_client_has_to_say(
    secured: Secured, secured_world: World, log_format: str, password: str
) -> None:
    world = secured_world
    world.deliver(3)
    world.processed(1)
    secured.allow(USER, everything(world))
    settings = {**secured.scram, "sasl.password": "${KAFKA_B_PASSWORD}", "debug": "all"}
    config = world.config(bootstrap=secured.sasl, extra=client_table(settings))
    secret = secured.password if password == "right" else secured.wrong_password
    ended = run_process("--debug", "--log-format", log_format, "plan", "-c", config, KAFKA_B_PASSWORD=secret)
    assert ended.code == (3 if password == "right" else 6), ended.output
    assert "SCRAM-SHA-512" in ended.err, "the client did not say much"
    assert secured.planted_in(ended.output) == []
