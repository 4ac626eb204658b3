"""One broker with four listeners and an authorizer (its fixtures are in ``fixtures``).

The plaintext listener is for the tests: its users are super users. On the others no user may do anything
that no ACL allows: ``SASL_SSL`` (TLS with SCRAM-SHA-512), ``SSL`` (TLS with client certificates), and ``LOGINS`` (TLS
with every other login: SCRAM-SHA-256, PLAIN, and OAUTHBEARER with tokens of ``tokens``).
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from reconciler.demo.lab.kafka import free_ports
from tests.demo.lab.kafka import KafkaCluster
from tests.kafka.security.certificates import Certificates, make_certificates
from tests.kafka.security.tokens import AUDIENCE, ISSUER, Tokens

USER = "clicks-job"
FUNCTIONS = "tests.kafka.security.tokens"
_HOST = "127.0.0.1"
_SECURITY = "org.apache.kafka.common.security"
_SCRAM = f"{_SECURITY}.scram.ScramLoginModule required;"
_ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_WORDS = {"DescribeConfigs": "DESCRIBE_CONFIGS"}


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """A permission: an operation, by the name ``kafka-acls.sh`` gives it, on a topic or a group."""

    operation: str
    resource: str
    name: str


class Secured:
    """The broker, the way in through each door, and every secret that was planted."""

    def __init__(
        self, cluster: KafkaCluster, certificates: Certificates, doors: Mapping[str, int], tokens: Tokens, password: str
    ) -> None:
        self.cluster = cluster
        self.certificates = certificates
        self.sasl = f"{_HOST}:{doors['SASL_SSL']}"
        self.tls = f"{_HOST}:{doors['SSL']}"
        self.logins = f"{_HOST}:{doors['LOGINS']}"
        self.tokens = tokens
        self.password = password
        self.wrong_password = _secret()

    @property
    def planted(self) -> tuple[str, ...]:
        """The secrets that must not appear in any output."""
        keys = self.certificates.client.read_text().splitlines()
        secrets = (self.password, self.wrong_password, self.certificates.password, keys[-2], *self.tokens.given)
        return (*secrets, *(base64.b64encode(each.encode()).decode() for each in secrets))

    def planted_in(self, text: str) -> list[str]:
        return [secret for secret in self.planted if secret in text]

    @cached_property
    def scram(self) -> dict[str, str]:
        """Client settings for the ``SASL_SSL`` door."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.authority),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": self.password,
        }

    @cached_property
    def mutual(self) -> dict[str, str]:
        """Client settings for the ``SSL`` door."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.certificates.authority),
            "ssl.certificate.location": str(self.certificates.client),
            "ssl.key.location": str(self.certificates.client),
            "ssl.key.password": self.certificates.password,
        }

    def login(self, mechanism: str) -> dict[str, str]:
        """Client settings for the ``LOGINS`` door, with a password."""
        return {**self.scram, "sasl.mechanism": mechanism}

    @cached_property
    def token(self) -> dict[str, str]:
        """Client settings for the ``LOGINS`` door, with tokens that the client fetches by id and secret."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.authority),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": USER,
            "sasl.oauthbearer.client.secret": self.password,
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
        }

    def own_token(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        """Client settings for the ``LOGINS`` door, with tokens of a function (``tokens.fetched``)."""
        known = {"TOKENS_URL": self.tokens.url, "TOKENS_USER": USER, "TOKENS_SECRET": self.password}
        for name, value in known.items():
            monkeypatch.setenv(name, value)
        return {"ssl.ca.location": str(self.certificates.authority), "oauth": f"python:{FUNCTIONS}:fetched"}

    def add_user(self) -> None:
        """Make ``USER``, and wait until the broker lets it in."""
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        hows = [ScramCredentialInfo(how, 4096) for how in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)]
        for how in hows:
            made = UserScramCredentialUpsertion(USER, how, self.password.encode())
            self.cluster.admin().alter_user_scram_credentials([made])[USER].result(30)
        quiet = {"log_level": 0, "error_cb": lambda _: None}
        for door, settings in ((self.sasl, self.scram), (self.logins, self.login("SCRAM-SHA-256"))):
            AdminClient({"bootstrap.servers": door, **settings, **quiet}).list_topics(timeout=30)

    def allow(self, user: str, acls: Iterable[Acl]) -> None:
        """Let ``user`` do exactly this from now on; the broker knows when this returns."""
        admin, wanted = self.cluster.admin(), set(acls)
        everything = _all_of(user)
        now = {_acl(binding) for binding in admin.describe_acls(everything).result(30)}
        if now - wanted:
            gone = [_binding(user, acl, kind="AclBindingFilter") for acl in now - wanted]
            for deleted in admin.delete_acls(gone).values():
                deleted.result(30)
        if wanted - now:
            for made in admin.create_acls([_binding(user, acl) for acl in wanted - now]).values():
                made.result(30)
        until = self.cluster.wait_until
        until(lambda: {_acl(it) for it in admin.describe_acls(everything).result(30)} == wanted, 30, "the ACLs")


def _secret() -> str:
    return f"planted-{secrets.token_hex(8)}"


def client_table(settings: Mapping[str, str]) -> str:
    """The ``[clusters.b.client]`` of a configuration file; with the leave to run a function that it names."""
    lines = ["[clusters.b.client]", *(f'"{key}" = {json.dumps(value)}' for key, value in settings.items())]
    return "\n".join([*lines, *(["[policy]", f'python = ["{FUNCTIONS}"]'] if "oauth" in settings else [])])


# ---------------------------------------------------------------- ACLs as the client library has them


def _binding(user: str, acl: Acl, *, kind: str = "AclBinding") -> Any:
    from confluent_kafka import admin

    return getattr(admin, kind)(
        admin.ResourceType[acl.resource.upper()],
        acl.name,
        admin.ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        admin.AclOperation[_WORDS.get(acl.operation, acl.operation.upper())],
        admin.AclPermissionType.ALLOW,
    )


def _all_of(user: str) -> Any:
    from confluent_kafka import admin

    return admin.AclBindingFilter(
        admin.ResourceType.ANY,
        None,
        admin.ResourcePatternType.ANY,
        f"User:{user}",
        None,
        admin.AclOperation.ANY,
        admin.AclPermissionType.ANY,
    )


def _acl(binding: Any) -> Acl:
    words = {word: operation for operation, word in _WORDS.items()}
    operation = words.get(binding.operation.name, binding.operation.name.capitalize())
    return Acl(operation, binding.restype.name.lower(), binding.name)


# ---------------------------------------------------------------- starting


def secured_broker(folder: Path, jars: Path) -> Secured:
    """Start it below ``folder``; stopping ``cluster`` and using ``tokens`` is the caller's."""
    certificates, password = make_certificates(folder, _secret()), _secret()
    tokens, keys = Tokens(USER, password), folder / "keys.json"
    tokens.write_keys(keys)
    doors = dict(zip(("SASL_SSL", "SSL", "LOGINS"), free_ports(3), strict=True))
    settings = {**_settings(certificates), **_logins(password, keys)}
    cluster = KafkaCluster("secured", folder / "broker", jars, properties=settings, listeners=doors)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-D{_ALLOWED_URLS}={keys.as_uri()}")
        cluster.start()
    return Secured(cluster, certificates, doors, tokens, password)


def _settings(certificates: Certificates) -> dict[str, str]:
    doors = ("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", "SASL_SSL:SASL_SSL", "SSL:SSL", "LOGINS:SASL_SSL")
    return {
        "listener.security.protocol.map": ",".join(doors),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": _SCRAM,
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(certificates.broker_store),
        "ssl.keystore.password": certificates.password,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
    }


def _logins(password: str, keys: Path) -> dict[str, str]:
    """Settings of the ``LOGINS`` door; ``keys`` says whose signature makes a token good."""
    door, token = "listener.name.logins", "listener.name.logins.oauthbearer.sasl"
    return {
        f"{door}.sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN,OAUTHBEARER",
        f"{door}.scram-sha-256.sasl.jaas.config": _SCRAM,
        f"{door}.plain.sasl.jaas.config": f'{_SECURITY}.plain.PlainLoginModule required user_{USER}="{password}";',
        f"{token}.jaas.config": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
        f"{token}.server.callback.handler.class": f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{token}.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        f"{token}.oauthbearer.expected.issuer": ISSUER,
        f"{token}.oauthbearer.expected.audience": AUDIENCE,
    }
