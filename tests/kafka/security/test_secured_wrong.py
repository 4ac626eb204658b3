"""Every refused connection: one line says what is wrong, whose move it is and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kafka.security.secured import FUNCTIONS, USER, Secured, client_table
from tests.sizes import sampled
from tests.starting import state_of
from tests.world import World

pytestmark = pytest.mark.system

Settings = dict[str, str]


@dataclass(frozen=True, slots=True)
class Wrong:
    """Wrong settings, and the words that the line must contain; by default the cluster refuses them."""

    name: str
    settings: Callable[[Secured, Path], Settings]
    message: str
    hint: str
    listener: str = "sasl"
    code: int = 6
    deadline: str = "30s"


def scram(**changes: str) -> Callable[[Secured, Path], Settings]:
    """The SCRAM settings with some changed (underscores are dots, an empty value leaves one out)."""
    return lambda secured, folder: _changed(secured.scram, changes)


def mutual(**changes: str) -> Callable[[Secured, Path], Settings]:
    return lambda secured, folder: _changed(secured.mutual, changes)


def _changed(settings: Mapping[str, str], changes: Mapping[str, str]) -> Settings:
    whole = {**settings, **{name.replace("_", "."): value for name, value in changes.items()}}
    return {name: value for name, value in whole.items() if value}


def _with(settings: Settings, **changes: str) -> Settings:
    return _changed(settings, changes)


FETCHED = f"python:{FUNCTIONS}:fetched"
NOT_TRUSTED = "shows a certificate that is not trusted here, is out of date, or is not made out to its address"
NO_ANSWER = "gave no answer in … s"
"""The seconds that passed stand there: on a busy machine they are more than the deadline."""
OTHER_PROTOCOL = "It accepts connections and closes them, as a port does that speaks another protocol than "
NO_CERTIFICATE = {"ssl_certificate_location": "", "ssl_key_location": "", "ssl_key_password": ""}

REFUSED = [
    Wrong(
        "password",
        lambda secured, _: _with(secured.scram, sasl_password=secured.wrong_password),
        f"refused the login of user '{USER}' (SASL authentication error: Authentication failed",
        "Correct sasl.username, sasl.password or sasl.mechanism under [clusters.NAME.client]",
    ),
    Wrong(
        "mechanism",
        scram(sasl_mechanism="PLAIN"),
        "broker's supported mechanisms: SCRAM-SHA-512",
        "sasl.mechanism under [clusters.NAME.client]",
    ),
    Wrong(
        "authority",
        lambda secured, _: _with(secured.scram, ssl_ca_location=str(secured.certificates.stranger)),
        NOT_TRUSTED,
        "Set ssl.ca.location under [clusters.NAME.client] to the certificate of the authority",
    ),
    Wrong(
        "host name",
        lambda secured, _: _with(secured.scram, broker_address_family="v4"),
        NOT_TRUSTED,
        "use the name that their certificate holds in bootstrap_servers",
        listener="localhost",
    ),
    Wrong(
        "no TLS",
        lambda secured, _: {},
        NO_ANSWER,
        f"{OTHER_PROTOCOL}PLAINTEXT: set security.protocol under [clusters.NAME.client] to SSL, SASL_SSL",
        deadline="3s",
    ),
    Wrong(
        "TLS at a plain port",
        scram(),
        f"{NO_ANSWER} (",
        "That port may speak without TLS, and security.protocol is SASL_SSL: take the port that speaks TLS",
        listener="plain",
        deadline="3s",
    ),
    Wrong(
        "no login where one is wanted",
        scram(security_protocol="SSL"),
        NO_ANSWER,
        f"{OTHER_PROTOCOL}SSL: set security.protocol under [clusters.NAME.client] to SSL, SASL_SSL",
        deadline="3s",
    ),
    Wrong(
        "a login where none is taken",
        scram(security_protocol="SASL_PLAINTEXT"),
        f"refused the login of user '{USER}'",
        "That port takes no logins: use another, or set security.protocol without SASL_",
        listener="plain",
    ),
    Wrong(
        "no certificate",
        mutual(**NO_CERTIFICATE),
        "asks for a client certificate, and none is configured",
        "Set ssl.keystore.location, or ssl.certificate.location and ssl.key.location",
        listener="tls",
    ),
    Wrong(
        "certificate",
        lambda secured, _: _with(
            secured.mutual,
            ssl_certificate_location=str(secured.certificates.stranger),
            ssl_key_location=str(secured.certificates.stranger),
        ),
        "does not accept the client's certificate",
        "Have it signed by an authority that the brokers trust",
        listener="tls",
    ),
]
"""Usable settings that the cluster refuses."""

TOKENS = [
    Wrong(
        "client secret",
        lambda secured, _: {**secured.token, "sasl.oauthbearer.client.secret": secured.wrong_password},
        "there was no token for the destination cluster at 127.0.0.1:",
        "and that it knows sasl.oauthbearer.client.id and its secret",
        listener="logins",
        deadline="3s",
    ),
    Wrong(
        "no provider",
        lambda secured, _: {**secured.token, "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token"},
        "Could not connect to server",
        "Check that the provider at sasl.oauthbearer.token.endpoint.url is up",
        listener="logins",
        deadline="3s",
    ),
    Wrong(
        "an expired token",
        lambda secured, _: {**secured.token, "sasl.oauthbearer.scope": "expired"},
        "Must supply an unexpired token",
        "Compare this machine's clock with the provider's",
        listener="logins",
        deadline="3s",
    ),
    Wrong(
        "another audience",
        lambda secured, _: {**secured.token, "sasl.oauthbearer.scope": "elsewhere"},
        "refused the login of this user (SASL authentication error",
        "Compare the token's issuer, audience and scope with what the brokers expect",
        listener="logins",
    ),
    Wrong(
        "a function that fails",  # the environment does not name its provider
        lambda secured, _: {"ssl.ca.location": str(secured.certificates.authority), "oauth": FETCHED},
        f"{FETCHED} failed with KeyError: 'TOKENS_URL'.",
        "Repair that, then run this again.",
        listener="logins",
        deadline="3s",
    ),
    Wrong(
        "an unsigned token",
        lambda secured, _: {
            **_with(secured.token, sasl_oauthbearer_method=""),
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=clicks-job",
        },
        "refused the login of this user (SASL authentication error",
        "Compare the token's issuer",
        listener="logins",
    ),
]
"""Logins without a token, or with a bad one."""

UNUSABLE = [
    Wrong(
        "Kerberos",
        scram(sasl_mechanism="GSSAPI"),
        "sasl.mechanism is GSSAPI (Kerberos), which this build of the Kafka client does not have",
        "pip install --no-binary confluent-kafka confluent-kafka",
        code=2,
    ),
    Wrong(
        "no such file",
        scram(ssl_ca_location="/no/such/ca.pem"),
        "ssl.ca.location under [clusters.NAME.client] names /no/such/ca.pem, which cannot be read: No such file",
        "Correct the path, or let this user read the file",
        code=2,
    ),
    Wrong(
        "a file's content for its path",
        lambda secured, _: _with(secured.mutual, ssl_key_location=f"file:{secured.certificates.client}"),
        "ssl.key.location under [clusters.NAME.client] holds a file's content, and takes its path",
        'Leave out "file:" in front of the path',
        listener="tls",
        code=2,
    ),
    Wrong(
        "key's password",
        lambda secured, _: _with(secured.mutual, ssl_key_password=secured.wrong_password),
        "ssl.key.location failed",
        "that ssl.key.password opens it",
        listener="tls",
        code=2,
    ),
    Wrong(
        "value",
        scram(security_protocol="SASL-SSL"),
        'Invalid value "SASL-SSL" for configuration property "security.protocol"',
        "Correct [clusters.NAME.client]",
        code=2,
    ),
]
"""Settings that the client library does not accept."""


def address(secured: Secured, listener: str) -> str:
    return {
        "sasl": secured.sasl,
        "localhost": secured.sasl.replace("127.0.0.1", "localhost"),
        "tls": secured.tls,
        "logins": secured.logins,
        "plain": secured.cluster.bootstrap,
    }[listener]


@pytest.fixture
def locked_out(secured: Secured, secured_world: World) -> Callable[[Wrong], Path]:
    """A job with a stored offset, and its configuration with something wrong in it."""
    secured_world.processed(5)

    def config(wrong: Wrong) -> Path:
        settings = wrong.settings(secured, secured_world.folder)
        extra = f'{client_table(settings)}\n[search]\ndeadline = "{wrong.deadline}"'
        extra += f'\n[state]\nstore = "sqlite:///{secured_world.folder}/state.db"'
        path = secured_world.config(bootstrap=address(secured, wrong.listener), extra=extra)
        state_of(path, "clicks", "a", to="b")
        return path

    return config


@pytest.mark.parametrize(
    "wrong",
    sampled([*REFUSED, *TOKENS, *UNUSABLE], keep=6, always=lambda wrong: wrong.name == "password"),
    ids=lambda wrong: wrong.name,
)
def test_one_line_says_what_is_wrong_and_nothing_is_written(
    secured: Secured, secured_world: World, locked_out: Callable[[Wrong], Path], wrong: Wrong
) -> None:
    config = locked_out(wrong)
    before = secured_world.rows()
    ended = secured_world.run("hook", "-c", config, "--plans", secured_world.folder / "plans")
    assert ended.code == wrong.code, ended.output
    (line,) = [each for each in ended.err.splitlines() if not each.startswith("waiting for ")]
    assert wrong.message in re.sub(r"(?<=answer in )\d+(?= s)", "…", line)
    assert wrong.hint in line
    if wrong.code == 6:
        assert f"the destination cluster at {address(secured, wrong.listener)}" in line
    assert ended.out == ""
    assert secured.planted_in(ended.output) == []
    assert secured_world.rows() == before
    assert list((secured_world.folder / "plans").iterdir()) == []
