"""A configuration file holds no secret, and the secrets that it refers to are never shown."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from reconciler.cli.terminal.logs import set_up_logging
from reconciler.config.secrets import KNOWN, Redactor
from reconciler.core.errors import ConfigError
from tests.config.configurations import LEAST, STORE, Load

PLANTED = "correct/horse+battery=staple"
KEY = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIGxvbmcgZW5vdWdo\n-----END PRIVATE KEY-----"


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    KNOWN.clear()
    yield
    KNOWN.clear()


def with_store(address: str) -> str:
    return LEAST.replace(STORE, address)


def with_table(lines: str) -> str:
    return f"{with_store('memory:')}\n{lines}\n"


# ---------------------------------------------------------------- plain text is refused


@pytest.mark.parametrize(
    ("text", "key"),
    [
        *(
            (with_table(f"[clusters.{name}.client]\n{key} = '{PLANTED}'"), f"[clusters.{name}.client] {key}")
            for name in ("a", "b")
            for key in (
                "sasl.password",
                "ssl.key.password",
                "ssl.key.pem",
                "ssl.keystore.password",
                "sasl.oauthbearer.client.secret",
                "sasl.oauthbearer.assertion.private.key.pem",
                "sasl.oauthbearer.assertion.private.key.passphrase",
                "sasl.jaas.config",
            )
        ),
        (
            with_table(f"[clusters.b.client]\n'sasl.oauthbearer.config' = 'principal=me secret={PLANTED}'"),
            "[clusters.b.client] sasl.oauthbearer.config",
        ),
        (with_table(f"[metrics]\npushgateway = 'http://me:{quote(PLANTED, safe='')}@h:9091'"), "[metrics] pushgateway"),
        (with_table(f"[state]\nstore = 'postgresql://me:{quote(PLANTED, safe='')}@h/db'"), "[state] store"),
        (with_store(f"postgresql://me:{quote(PLANTED, safe='')}@h/db"), "[jobs] offsets"),
        (with_store(f"postgresql://h/db?user=me&password={quote(PLANTED, safe='')}"), "[jobs] offsets"),
        (with_store("postgresql://h/db?sslpassword=x"), "[jobs] offsets"),
        (with_store(f"zookeeper://me:{quote(PLANTED, safe='')}@h:2181/kafka?layout=single"), "[jobs] offsets"),
        (with_store(f"files:webhdfs://me:{quote(PLANTED, safe='')}@h:9870/a"), "[jobs] offsets"),
        (with_table(f"[clusters.b.client]\n'sasl.password' = '{PLANTED}${{NAME}}'"), "[clusters.b.client] sasl.pass"),
    ],
)
def test_a_secret_in_plain_text_is_refused_by_the_name_of_its_key(load: Load, text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(text, NAME="x")
    assert f"{key}" in caught.value.message
    assert "holds a secret in plain text" in caught.value.message
    assert "${NAME}" in str(caught.value.hint)
    assert "file:PATH" in str(caught.value.hint)
    assert PLANTED not in str(caught.value)
    assert quote(PLANTED, safe="") not in str(caught.value)


@pytest.mark.parametrize("secret", ["12345678", "1234.5678", "1979-05-27", "07:32:00", "true", "0xdecade"])
def test_a_secret_without_quotes_is_one_in_plain_text(load: Load, secret: str) -> None:
    key = "[clusters.b.client] sasl.password"
    table, _, name = key.partition(" ")
    with pytest.raises(ConfigError) as caught:
        load(with_table(f"{table}\n{name} = {secret}"))
    assert f"{key} holds a secret in plain text." in caught.value.message
    assert secret not in str(caught.value)
    assert not caught.value.others


@pytest.mark.parametrize(
    "text",
    [
        with_table("[clusters.b.client]\n'ssl.key.location' = '/etc/key.pem'\n'ssl.ca.pem' = 'a certificate'"),
        with_table("[clusters.b.client]\n'sasl.oauthbearer.token.endpoint.url' = 'https://idp/token'"),
        with_table("[topics.names.b]\n'reset.password@a' = 'mirrored.reset.password'"),
        with_store("postgresql://me@h/db?sslkey=/etc/key.pem&passfile=/etc/pgpass"),
        with_store("postgresql://me:${PASSWORD}@h/db?sslpassword=${PASSWORD}"),
        with_store("${ADDRESS}"),
    ],
)
def test_other_values_and_references_are_accepted(load: Load, text: str) -> None:
    load(text, PASSWORD="x", ADDRESS="postgresql://me:x@h/db")


def test_a_password_that_would_break_its_address_is_refused_before_a_part_of_it_is_taken_for_the_host(
    load: Load,
) -> None:
    for store in ("postgresql://me:${PASSWORD}@h/db", "postgresql://h/db?password=${PASSWORD}"):
        with pytest.raises(ConfigError, match="Percent-encode it") as caught:
            load(with_store(store), PASSWORD="pass@word/x&y")
        assert "pass@word" not in str(caught.value)
    load(with_store("postgresql://me:${PASSWORD}@h/db"), PASSWORD="pass%40word")


# ---------------------------------------------------------------- redaction


@pytest.mark.parametrize("log_format", ["text", "json"])
@pytest.mark.parametrize("secret", [PLANTED, "quote\"d\\and'quoted", "pässwörd", "short", KEY])
def test_a_secret_is_taken_out_of_the_log_in_every_way_it_may_be_written(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str], log_format: str, secret: str
) -> None:
    (tmp_path / "secret").write_text(secret)
    set_up_logging(log_format, debug=True)
    load(with_table(f"[clusters.b.client]\n'sasl.password' = 'file:{tmp_path / 'secret'}'"))
    written = [
        secret,
        repr(secret),
        json.dumps(secret),
        quote(secret, safe=""),
        base64.b64encode(f"me:{secret}".encode()).decode(),
        base64.b64encode(f"you:{secret}:x".encode()).decode(),
    ]
    for text in written:
        logging.getLogger("some.client").error("login %s failed", text)
        try:
            raise ValueError(text)
        except ValueError:
            logging.getLogger("reconciler").error("no", exc_info=True)
        sys.excepthook(ValueError, ValueError(text), None)
    said = capsys.readouterr().err
    assert f"file:{tmp_path / 'secret'}" in said
    assert all(text not in said for text in written)
    assert "MC4CAQAwBQYDK2Vw" not in said


def test_secrets_within_addresses_are_known_also_where_a_whole_address_is_put_in(load: Load) -> None:
    load(with_store("${STORE}"), STORE=f"postgresql://me:{quote(PLANTED, safe='')}@h/db")
    assert KNOWN.redacted(f'password authentication failed: "{PLANTED}"') == (
        'password authentication failed: "${STORE}"'
    )


def test_a_replacement_that_is_no_secret_is_logged_unchanged(load: Load) -> None:
    load(with_store("sqlite:///${PLACE}/offsets.db"), PLACE="/srv/clicks")
    assert KNOWN.redacted("/srv/clicks/offsets.db is busy") == "/srv/clicks/offsets.db is busy"


def test_a_short_secret_does_not_disfigure_the_words_it_is_a_part_of() -> None:
    redactor = Redactor()
    redactor.add("kafka", "***")
    assert redactor.redacted("kafkas cluster, password kafka.") == "kafkas cluster, password ***."


def test_a_name_cannot_forge_a_line_of_the_log_nor_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("text", debug=False)
    logging.getLogger("reconciler").warning("group %s", "x\n2026 all is well\r\x1b[2J\x9b2J\u202e")
    assert capsys.readouterr().err == "group x\\x0a2026 all is well\\x0d\\x1b[2J\\x9b2J\\u202e\n"


def test_a_line_of_json_is_one_line_and_holds_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging("json", debug=False)
    name = "x\ny\x1b[2J\x9b2J\u2028\u202e"
    logging.getLogger("reconciler").warning("group %s", name)
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == f"group {name}"
    assert line.isprintable()


def test_a_variable_that_is_no_text_is_refused(load: Load) -> None:
    """The environment may hold any bytes; Python keeps those that are not UTF-8 as halves of characters."""
    with pytest.raises(ConfigError, match=r"\$\{PLACE\} holds bytes that are not UTF-8 text"):
        load(with_store("sqlite:///${PLACE}/offsets.db"), PLACE="\udcff")
