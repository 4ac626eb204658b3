"""The clouds' own sample files, as ``init --client-config`` takes or refuses them.

After the vendors' pages for clients of Kafka, with invented names and secrets.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.config.secrets import filled
from reconciler.core.errors import ConfigError
from reconciler.preflight.client_properties import client_without_secrets, read_properties

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
MSK = "software.amazon.msk.auth.iam"
CONFLUENT = """
# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-1.europe-west1.gcp.confluent.cloud:9092
security.protocol=SASL_SSL
# Best practice for higher availability
session.timeout.ms=45000
"""
OF_CONFLUENT = {"security.protocol": "SASL_SSL"}
PASSWORD = "${RECONCILER_SASL_PASSWORD}"
AZURE = "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=s3cret/+="

TAKEN = {
    "Confluent Cloud, Java": (
        f"{CONFLUENT}sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN}   username='KEY'   password='s3cret/+==';\n"
        "client.dns.lookup=use_all_dns_ips\nacks=all\nschema.registry.url=https://psrc-1.confluent.cloud\n"
        "basic.auth.credentials.source=USER_INFO\nbasic.auth.user.info=SRKEY:s3cret\n",
        {**OF_CONFLUENT, "sasl.mechanism": "PLAIN", "sasl.username": "KEY", "sasl.password": PASSWORD},
    ),
    "Confluent Cloud, librdkafka": (
        f"{CONFLUENT}sasl.mechanisms=PLAIN\nsasl.username=KEY\nsasl.password=s3cret/+==\nclient.id=ccloud-python\n",
        {
            **OF_CONFLUENT,
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "KEY",
            "sasl.password": PASSWORD,
            "client.id": "ccloud-python",
        },
    ),
    "Confluent Cloud, OAuth": (
        f"{CONFLUENT}sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=https://id.example/token\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler\n"
        f"sasl.jaas.config={BEARER} \\\n  clientId='me' \\\n  clientSecret='s3cret' \\\n  scope='api://x/.default' \\\n"
        "  extension_logicalCluster='lkc-1' \\\n  extension_identityPoolId='pool-1';\n",
        {
            **OF_CONFLUENT,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "${RECONCILER_SASL_OAUTHBEARER_CLIENT_SECRET}",
            "sasl.oauthbearer.scope": "api://x/.default",
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
        },
    ),
    "Azure Event Hubs": (
        "bootstrap.servers=ns.servicebus.windows.net:9093\nrequest.timeout.ms=60000\nsecurity.protocol=SASL_SSL\n"
        f'sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} username="$ConnectionString" password="{AZURE}";\n',
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "$ConnectionString",
            "sasl.password": PASSWORD,
        },
    ),
    "Amazon MSK, IAM": (
        f"security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config={MSK}.IAMLoginModule required;\n"
        f"sasl.client.callback.handler.class={MSK}.IAMClientCallbackHandler\n",
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"},
    ),
    "Google, a service account's key": (
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        f'{PLAIN} \\\n  username="me@project.iam.gserviceaccount.com" \\\n  password="s3cret";\n',
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me@project.iam.gserviceaccount.com",
            "sasl.password": PASSWORD,
        },
    ),
    "Aiven, with PEM": (
        "security.protocol=SSL\nssl.protocol=TLS\nssl.truststore.type=PEM\nssl.truststore.location=ca.pem\n"
        "ssl.keystore.type=PKCS12\nssl.keystore.location=client.keystore.p12\nssl.keystore.password=s3cret\n"
        "ssl.key.password=s3cret\n",
        {
            "security.protocol": "SSL",
            "ssl.ca.location": "ca.pem",
            "ssl.keystore.location": "client.keystore.p12",
            "ssl.keystore.password": "${RECONCILER_SSL_KEYSTORE_PASSWORD}",
            "ssl.key.password": "${RECONCILER_SSL_KEY_PASSWORD}",
        },
    ),
    "IBM Event Streams": (
        "security.protocol=SASL_SSL\nssl.protocol=TLSv1.2\nssl.enabled.protocols=TLSv1.2\n"
        "ssl.endpoint.identification.algorithm=HTTPS\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} username="token" password="s3cret";\n',
        {
            "security.protocol": "SASL_SSL",
            "ssl.endpoint.identification.algorithm": "HTTPS",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "token",
            "sasl.password": PASSWORD,
        },
    ),
}
REFUSED = {
    "Amazon MSK, SCRAM": (
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        "ssl.truststore.location=/tmp/kafka.client.truststore.jks\n",
        "of type JKS, which librdkafka does not read. Export the authority's certificate as PEM",
    ),
    "Amazon MSK, a profile": (
        f'sasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config={MSK}.IAMLoginModule required awsProfileName="x";\n',
        "names awsProfileName, which AWS's signer does not take. Leave it out, and name a profile",
    ),
    "Google, its own handler": (
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class=com.google.cloud.hosted.kafka.auth.GcpLoginCallbackHandler\n"
        f"sasl.jaas.config={BEARER};\n",
        "sasl.login.callback.handler.class is GcpLoginCallbackHandler",
    ),
    "Azure Event Hubs, OAuth": (
        "security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={BEARER};\nsasl.login.callback.handler.class=CustomAuthenticateCallbackHandler\n",
        "--client oauth=python:MODULE:FUNCTION",
    ),
    "Cloudera, a ticket of Kerberos": (
        "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;\n",
        "the login is Kerberos, which only some builds of librdkafka have",
    ),
    "Strimzi, MirrorMaker's secret": (
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config="
        "org.apache.kafka.common.security.scram.ScramLoginModule required username=me "
        'password="${secrets:kafka/me:password}";\n',
        "sasl.jaas.config has ${secrets:…}, a placeholder of Kafka's config providers",
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_clouds_sample_becomes_librdkafkas_without_its_secret(name: str, tmp_path: Path) -> None:
    text, wanted = TAKEN[name]
    (tmp_path / "client.properties").write_text(text)
    client = read_properties(tmp_path / "client.properties").client
    client.pop("bootstrap.servers", None)
    safe, needed = client_without_secrets(client)
    assert safe == wanted
    assert filled(safe, needed, {}) == client
    assert "s3cret" not in str(safe)


@pytest.mark.parametrize("name", REFUSED)
def test_a_sample_without_counterpart_is_refused_with_what_to_use(name: str, tmp_path: Path) -> None:
    text, words = REFUSED[name]
    (tmp_path / "client.properties").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_properties(tmp_path / "client.properties")
    said = " ".join(f"{each.message} {each.hint}" for each in (caught.value, *caught.value.others))
    assert words in said
