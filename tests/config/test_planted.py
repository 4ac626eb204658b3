"""Secrets planted in every place that can hold one, and in records: no command shows one, in success or in failure.

The log's redaction is switched off, since no code may rely on it; except where a server repeats what it was sent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

from reconciler.config.secrets import KNOWN
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from tests.config.planted import found_in, found_in_files
from tests.kafka.security.secured import USER, Acl, Secured
from tests.starting import with_state
from tests.world import CommandResult, World, source_record

pytestmark = pytest.mark.system

IDS = ["planted-id-of-record-a", "planted-id-of-record-b"]
PAYLOADS = ["planted-payload-a", "planted-payload-b"]
OTHERS = {
    "SOURCE_PASSWORD": "planted/source+password",
    "PUSH_PASSWORD": "planted?push#password",
}
NOBODY = "127.0.0.1:2"
"""An address without a listener: privileged, and unassigned."""
RAW = ("*.applied.json", "*.db*", "secret-*", "*.pem")
"""What holds raw ids, as a store does, and what holds the secrets by their nature."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A job whose configuration is full of secrets, and all that must not be seen."""

    world: World
    secrets: list[str]
    gateway: str
    source: str
    """A cluster that refuses the login."""
    authority: str

    def config(
        self,
        servers: str,
        client: dict[str, str],
        store: str | None = None,
        deadline: str = "10s",
    ) -> Path:
        tables = {
            "clusters.a": {"bootstrap_servers": self.source},
            "clusters.a.client": {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": self.authority,
                "sasl.mechanism": "PLAIN",
                "sasl.username": "me",
                "sasl.password": "${SOURCE_PASSWORD}",
                "ssl.key.password": "${KEY_PASSWORD}",
                "ssl.key.pem": f"file:{self.world.folder / 'secret-key.pem'}",
                "ssl.certificate.pem": f"file:{self.world.folder / 'secret-key.pem'}",
            },
            "clusters.b": {"bootstrap_servers": servers},
            "clusters.b.client": client,
            "search": {"deadline": deadline},
            "metrics": {
                "textfile": str(self.world.folder),
                "pushgateway": self.gateway.replace("//", "//me:${PUSH_PASSWORD}@"),
            },
        }
        path = self.world.folder / f"{len(list(self.world.folder.glob('*.toml')))}.toml"
        lines = []
        for name, values in tables.items():
            lines += [f"[{name}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in values.items())]
        path.write_text("\n".join([*lines, self.world.job(store=store), ""]))
        return with_state(path, to="b")

    def run(self, *arguments: object) -> CommandResult:
        ended = self.world.run(*arguments)
        assert found_in(ended.output, self.secrets) == [], f"{arguments}: {ended.output[-2000:]}"
        return ended

    def nothing_is_written(self) -> None:
        assert found_in_files(self.world.folder, self.secrets, leave_out=RAW) == {}


@pytest.fixture
def gateway() -> Iterator[str]:
    """A push gateway that refuses, and repeats what it was sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.send_response(401, str(self.headers["Authorization"]))
            self.end_headers()

        do_POST = do_PUT

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def loud(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return ("--debug", "--log-format", "json") if request.param == "json" else ("--debug",)


@pytest.fixture
def planted(
    secured: Secured, secured_world: World, gateway: str, loud: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> Planted:
    from confluent_kafka import Producer

    if "json" not in loud:
        gateway = "http://127.0.0.1:1"
        monkeypatch.setattr(type(KNOWN), "add", lambda *_: None)
    world = secured_world
    for name, value in OTHERS.items():
        monkeypatch.setenv(name, quote(value, safe="") if name in ("ANCHORS_PASSWORD", "PUSH_PASSWORD") else value)
    monkeypatch.setenv("KAFKA_B_PASSWORD", secured.password)
    monkeypatch.setenv("KEY_PASSWORD", secured.certificates.password)
    monkeypatch.setenv("WRONG_PASSWORD", secured.wrong_password)
    (world.folder / "secret-key.pem").write_text(secured.certificates.client.read_text())
    secured.cluster.create_topic(world.mirrored, 1)
    producer = Producer({"bootstrap.servers": secured.cluster.bootstrap, "log_level": 0})
    for id, payload in zip(IDS, PAYLOADS, strict=True):
        producer.produce(
            world.mirrored,
            payload,
            payload,
            headers=[("message-id", id)],
            timestamp=source_record(0).timestamp_ms,
        )
    assert producer.flush(30) == 0
    payload, id = PAYLOADS[0].encode(), IDS[0].encode()
    anchor = Anchor(700, source_record(0).timestamp_ms, id, fingerprint(payload, payload), "the source", "its topic")
    world.save({0: StoredOffset(701, anchor)})
    secured.allow(USER, [Acl("Read", "topic", world.mirrored), Acl("DescribeConfigs", "topic", world.mirrored)])
    secrets = [*secured.planted, *OTHERS.values(), *IDS, *PAYLOADS]
    return Planted(world, secrets, gateway, secured.logins, str(secured.certificates.authority))


@pytest.mark.parametrize("loud", [pytest.param("text", marks=pytest.mark.thorough), "json"], indirect=True)
def test_no_command_that_succeeds_shows_a_secret(secured: Secured, planted: Planted, loud: tuple[str, ...]) -> None:
    client = {**secured.scram, "sasl.password": "${KAFKA_B_PASSWORD}", "debug": "security,broker,protocol"}
    config = planted.config(secured.sasl, client)
    plan, folder = planted.world.plan_file, planted.world.folder
    steps: list[tuple[int, tuple[object, ...]]] = [
        (3, ("plan", "-c", config)),
        (3, ("plan", "-c", config, "--format", "json")),
        (0, ("plan", "-c", config, "-o", plan)),
        (0, ("show", plan)),
        (0, ("show", plan, "--html", folder / "plan.html")),
        (0, ("show", plan, "--starting-offsets")),
        (0, ("apply", plan, "-c", config, "--yes")),
        (0, ("apply", plan, "-c", config, "--yes")),
        (0, ("rollback", "-c", config, "--job", "clicks", "--yes")),
        (0, ("watch", "-c", config, "--once")),
        (0, ("drill", "-c", config)),
        (0, ("move", "--to", "b", "-c", config, "--yes", "--details")),
        (0, ("status", "-c", config, "--history")),
        (0, ("status", "-c", config, "--format", "json")),
        (0, ("hook", "-c", config, "--plans", folder / "plans")),
        (6, ("watch", "-c", config, "--once")),  # toward a, now
        (6, ("track", "-c", planted.config(secured.sasl, client, "kafka-group:"), "--once")),
        (0, ("config", "check", "-c", config)),
        (0, ("config", "check", "-c", config, "--offline")),
    ]
    for code, arguments in steps:
        ended = planted.run(*loud, *arguments)
        assert ended.code == code, f"{arguments}: {ended.output[-3000:]}"
    exported = folder / "exported.jsonl"
    assert planted.world.run("anchors", "export", "-c", config, exported).code == 0
    assert found_in(exported.read_text(), IDS) == [IDS[0]], "an export is for the stores: it holds ids"
    exported.unlink()
    planted.nothing_is_written()


@pytest.mark.parametrize(
    ("loud", "wrong"),
    [
        ("text", "password"),
        pytest.param("json", "password", marks=pytest.mark.thorough),
        ("text", "address"),
        ("text", "property"),
        ("text", "key"),
    ],
    indirect=["loud"],
)
def test_no_command_that_fails_shows_a_secret(
    secured: Secured, planted: Planted, loud: tuple[str, ...], wrong: str
) -> None:
    right = {**secured.scram, "sasl.password": "${KAFKA_B_PASSWORD}"}
    key = f"file:{planted.world.folder / 'secret-key.pem'}"
    servers, client, code = {
        "password": (secured.sasl, {**right, "sasl.password": "${WRONG_PASSWORD}"}, 6),
        "address": (NOBODY, right, 6),
        "property": (secured.sasl, {**right, "sasl.pasword": "${KAFKA_B_PASSWORD}"}, 2),
        "key": (secured.tls, {**secured.mutual, "ssl.key.location": key, "ssl.key.password": "${WRONG_PASSWORD}"}, 2),
    }[wrong]
    config = planted.config(servers, client, deadline="300ms" if servers == NOBODY else "2s")
    good = planted.world.config()
    planted.world.plan(good)
    plan, folder = planted.world.plan_file, planted.world.folder
    for arguments in (
        ("plan", "-c", config),
        ("plan", "-c", config, "-o", folder / "other.plan.json"),
        ("apply", plan, "-c", config, "--yes"),
        ("hook", "-c", config, "--plans", folder / "plans"),
        ("watch", "-c", config, "--once"),
        ("drill", "-c", config),
        ("config", "check", "-c", config),
    ):
        ended = planted.run(*loud, *arguments)
        assert ended.code == code or arguments[0] == "watch", f"{arguments}: {ended.output[-3000:]}"
    planted.nothing_is_written()
