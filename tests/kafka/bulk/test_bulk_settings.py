"""Which client settings the reader of many partitions takes, and as what."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from reconciler.kafka.bulk.wire import translate_settings

SERVERS = {"bootstrap.servers": "one:9092, two:9093"}
LOGIN = {"sasl.username": "u", "sasl.password": "p"}


def test_addresses_and_the_name_of_the_client_are_taken_over() -> None:
    found = translate_settings({**SERVERS, "client.id": "c", "log_level": 0})
    assert found is not None
    assert found.servers == (("one", 9092), ("two", 9093))
    assert found.options == {"client_id": "c", "security_protocol": "PLAINTEXT"}
    unnamed = translate_settings(SERVERS)
    assert unnamed is not None
    assert unnamed.options["client_id"] == "reconciler"


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_logins_are_taken_over(key: str, mechanism: str) -> None:
    found = translate_settings({**SERVERS, **LOGIN, "security.protocol": "sasl_plaintext", key: mechanism})
    assert found is not None
    assert found.options == {
        "client_id": "reconciler",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
    }


SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}


@pytest.mark.parametrize(
    "settings",
    [
        {"socket.timeout.ms": 100},
        {"client.rack": "r"},
        {"oauth_cb": print},
        {"bootstrap.servers": "one"},
        {"bootstrap.servers": "PLAINTEXT://one:9092"},
        {"bootstrap.servers": "[::1]:9092"},
        {"bootstrap.servers": "one:9092,"},
        {"security.protocol": "SASL"},
        {**SASL, "sasl.username": "u"},
        {**SASL, **LOGIN, "sasl.mechanism": "GSSAPI"},
        {**SASL, **LOGIN, "sasl.mechanism": "OAUTHBEARER"},
        {**SASL, **LOGIN, "sasl.mechanisms": "PLAIN"},
        {"security.protocol": "SASL_PLAINTEXT", **LOGIN},
        {"security.protocol": "SSL"},
        {"security.protocol": "SSL", "ssl.ca.pem": "…"},
        {"security.protocol": "SSL", "ssl.ca.location": "ca", "ssl.certificate.location": "c"},
        {"security.protocol": "SSL", "ssl.ca.location": "ca", "enable.ssl.certificate.verification": False},
        {"security.protocol": "SSL", "ssl.ca.location": "ca", "ssl.endpoint.identification.algorithm": "other"},
    ],
    ids=str,
)
def test_settings_that_may_mean_something_else_are_not_taken(settings: dict[str, Any]) -> None:
    assert translate_settings({**SERVERS, **settings}) is None


def authority(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    path = folder / "authority.pem"
    path.write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
    return path


def test_tls_checks_as_much_as_the_other_client_does(tmp_path: Path) -> None:
    tls = {**SERVERS, "security.protocol": "SSL", "ssl.ca.location": str(authority(tmp_path))}
    named, unnamed = (
        translate_settings(tls),
        translate_settings({**tls, "ssl.endpoint.identification.algorithm": "none"}),
    )
    assert named is not None
    assert unnamed is not None
    contexts = [each.options["ssl_context"] for each in (named, unnamed)]
    assert [each.verify_mode for each in contexts] == [ssl.CERT_REQUIRED, ssl.CERT_REQUIRED]
    assert [each.check_hostname for each in contexts] == [True, False]
    assert len(contexts[0].get_ca_certs()) == 1, "the system's authorities would be trusted, too"
    with pytest.raises(OSError, match="No such file"):
        translate_settings({**tls, "ssl.ca.location": str(tmp_path / "none")})
