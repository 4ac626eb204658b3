"""A cluster's login for Spark's Kafka source: the same as librdkafka's, in Java's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.core.errors import ConfigError
from reconciler.preflight.client_properties import translated
from reconciler.spark.logins import with_login

SASL = {"security.protocol": "SASL_SSL"}
OIDC = {
    **SASL,
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://id/token",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": 's"3\\',
    "sasl.oauthbearer.scope": "kafka",
    "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=p-1",
}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIC\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    "client",
    [
        {**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "$ConnectionString", "sasl.password": 'End="sb\\://x";'},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "a"}
        | {"sasl.password": "b"},
        {**SASL, "sasl.mechanism": "AWS_MSK_IAM"},
        OIDC,
    ],
    ids=lambda client: client["sasl.mechanism"],
)
def test_translated_back_it_is_the_same_login(client: dict[str, str]) -> None:
    options = with_login(client, {"includeHeaders": "true"}, {})
    assert options.pop("includeHeaders") == "true"
    javas = {name.removeprefix("kafka."): value for name, value in options.items()}
    assert translated(javas, "Spark").client == client


def test_certificates_and_a_key_go_along_as_text(tmp_path: Path) -> None:
    path = tmp_path / "me.pem"
    path.write_text(f"Bag Attributes\n{CERTIFICATE}\n{KEY}\n")
    own = {"ssl.certificate.location": str(path), "ssl.key.location": str(path), "ssl.key.password": "x"}
    assert with_login({"security.protocol": "ssl", "ssl.ca.pem": CERTIFICATE, **own}, None, {}) == {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": CERTIFICATE,
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": CERTIFICATE,
        "kafka.ssl.keystore.key": KEY,
        "kafka.ssl.key.password": "x",
    }


def test_a_login_of_its_own_is_left_alone_and_none_is_made_up() -> None:
    own = {"kafka.sasl.jaas.config": "mine", "kafka.isolation.level": "read_committed"}
    assert with_login({**SASL, "sasl.mechanism": "GSSAPI"}, own, {}) == own
    assert with_login({"sasl.username": "unused", "sasl.password": "unused"}, None, {}) == {}


def test_databricks_has_other_names_for_the_classes() -> None:
    there = {"DATABRICKS_RUNTIME_VERSION": "16.4"}
    plain = {**SASL, "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    assert with_login(plain, None, there)["kafka.sasl.jaas.config"].startswith("kafkashaded.org.apache.kafka.")
    iam = with_login({"sasl.mechanism": "AWS_MSK_IAM"}, None, there)
    assert iam["kafka.sasl.jaas.config"] == "shadedmskiam.software.amazon.msk.auth.iam.IAMLoginModule required;"


@pytest.mark.parametrize(
    ("client", "words"),
    [
        ({"oauth": "python:tokens:fetch"}, "its token comes from python:tokens:fetch, which Java cannot call"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is GSSAPI"),
        ({**OIDC, "https.ca.location": "/x"}, "https.ca.location names an authority"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"}, "with a client's secret"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}, "which Java does not have"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/such.pem"}, "names /no/such.pem, which cannot be read"),
        (
            {
                "security.protocol": "SSL",
                "ssl.certificate.pem": CERTIFICATE,
                "ssl.key.pem": KEY.replace(" P", " RSA P"),
            },
            "its key is not in PKCS#8. Convert it: openssl pkcs8 -topk8",
        ),
    ],
)
def test_a_login_that_java_lacks_is_refused_with_the_way_out(client: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_login(client, None, {})
    assert words in f"{caught.value.message} {caught.value.hint}"
