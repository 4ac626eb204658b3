"""Client files as people have them: read as Java reads them, or refused with the way out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.core.errors import ConfigError
from reconciler.preflight.client_properties import GivenClient, given_properties, read_properties

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
LOGIN = {"sasl.username": "etl", "sasl.password": "s3"}


@pytest.fixture
def taken(tmp_path: Path) -> Callable[[str | bytes], GivenClient]:
    def read(text: str | bytes) -> GivenClient:
        path = tmp_path / "client.properties"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_properties(path)

    return read


@pytest.fixture
def properties(taken) -> Callable[[str], dict[str, str]]:
    return lambda text: taken(text).client


@pytest.fixture
def refused(taken) -> Callable[[str | bytes], str]:
    """All faults of the file, with their hints."""

    def read(text: str | bytes) -> str:
        with pytest.raises(ConfigError) as caught:
            taken(text)
        assert "s3cret" not in "\n".join(map(str, (caught.value, *caught.value.others)))
        return "\n".join(f"{each.message} {each.hint}" for each in (caught.value, *caught.value.others))

    return read


# ---------------------------------------------------------------- as Java reads it


def test_a_properties_file_of_kafkas_own_tools_becomes_librdkafkas(properties) -> None:
    assert properties(
        """
        # as kafka-acls.sh --command-config takes it
        bootstrap.servers = b:9093
        security.protocol=SASL_SSL
        sasl.mechanism: SCRAM-SHA-512
        sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
            username="me" password="say \\\\"hush\\\\"";
        ssl.truststore.location=/etc/ca.pem
        ssl.truststore.type=PEM
        ssl.truststore.password=nobody-needs-it
        ssl.keystore.location=/etc/me.p12
        ssl.keystore.password=changeit
        ssl.endpoint.identification.algorithm=
        key.deserializer=org.apache.kafka.common.serialization.StringDeserializer
        group.id=console
        """
    ) == {
        "bootstrap.servers": "b:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'say "hush"',
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.keystore.location": "/etc/me.p12",
        "ssl.keystore.password": "changeit",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_librdkafkas_other_name_for_the_brokers_is_theirs() -> None:
    assert given_properties(["metadata.broker.list=b:9092"]).client == {"bootstrap.servers": "b:9092"}
    with pytest.raises(ConfigError, match="both name the brokers"):
        given_properties(["metadata.broker.list=b:9092", "bootstrap.servers=c:9092"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "sasl.username=DOMAIN\\user\nsasl.password=p",
            "reads them differently from Java. Give each property of librdkafka as --client KEY=VALUE",
        ),
        ("ssl.truststore.certificates=-----BEGIN", "and give that as ssl.ca.location"),
        ("ssl.keystore.key=-----BEGIN", "and give that as ssl.key.location"),
        ("ssl.truststore.location=/etc/trust.jks", "of type JKS, which librdkafka does not read"),
        ("ssl.keystore.location=/etc/me.p12\nssl.keystore.type=JKS", "keytool -importkeystore"),
        ("sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required;", "the login is Kerberos"),
        ("just-words", "a line is not NAME=VALUE"),
    ],
)
def test_a_property_without_counterpart_is_refused_with_the_way_out(properties, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        properties(text)
    assert words in str(caught.value)


def test_an_option_that_is_no_pair_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        given_properties(["hushhush"])
    assert "hushhush" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("client.id=etl", "etl"),
        ("  client.id : etl  ", "etl"),
        ("client.id etl", "etl"),
        ("client\\u002eid=\\u0065tl", "etl"),
        ("client.id=e\\\n   tl", "etl"),
        ("client.id=e\\\r\n#tl", "e#tl"),
        ("client.id=etl\\\\\nacks=all", "etl\\"),
        ("client.id=a\\tb\\:c\\=d\\!\\ e", "a\tb:c=d! e"),
        ("client.id==x", "=x"),
        ("client.id=one\rclient.id=two", "two"),
        ("! client.id=no \\\nclient.id=yes", "yes"),
        ("   # client.id=no \\\nclient.id=yes", "yes"),
        ("\ufeffclient.id=etl", "etl"),
    ],
)
def test_a_line_is_read_as_java_reads_it(properties, text: str, value: str) -> None:
    assert properties(text)["client.id"] == value


def test_characters_that_java_reads_differently_are_refused_and_comments_are_not(properties, refused) -> None:
    assert "\\u and its four hexadecimal digits" in refused("client.id=\u00fcber-s3cret")
    assert "client.id" in refused("client.id=über".encode("latin-1"))
    assert properties("# für\nclient.id=\\u00fcber\n") == {"client.id": "über"}


def test_a_backslash_that_java_does_not_read_is_named_by_its_property(refused) -> None:
    assert "client.rack has \\u without four" in refused("client.rack=C:\\users\\s3cret\nssl.truststore.type=PEM")


# ---------------------------------------------------------------- logins


@pytest.mark.parametrize(
    "options",
    [
        'username="etl" password="s3";',
        "username='etl' password='s3';",
        "username=etl password=s3;",
        r"username=\"etl\" password=\"s3\";",
        'serviceName="x" username = "etl"\tpassword= "s3" ;',
    ],
)
def test_a_jaas_line_is_read_as_kafka_reads_it(properties, options: str) -> None:
    assert properties(f"sasl.jaas.config={SCRAM} {options}\n") == LOGIN


def test_a_password_keeps_what_is_between_its_quotes(properties) -> None:
    found = properties(f"sasl.jaas.config={SCRAM} username='$ConnectionString' password='a \\\\'b;\"c=d#'; \n")
    assert found == {"sasl.username": "$ConnectionString", "sasl.password": "a 'b;\"c=d#"}


@pytest.mark.parametrize(
    ("jaas", "words"),
    [
        (f'{SCRAM} username="etl" password=5s3cret;', "is not LOGIN.MODULE required"),
        (f'{SCRAM} username="etl" password="s3cret;', "is not LOGIN.MODULE required"),
        (f'{SCRAM} username="etl" password="x"s3cret;', "is not LOGIN.MODULE required"),
        (f'{SCRAM} username="etl" /* who */ password="s3cret";', "is not LOGIN.MODULE required"),
        (f'{SCRAM} username="etl" password="\\\\163s3cret";', "write the character itself"),
        (f'{SCRAM} username="a" password="s3cret"; {SCRAM} username="b" password="s3cret";', "has 2 login modules"),
        ('username="etl" password="s3cret";', "is not LOGIN.MODULE required"),
        (f'{SCRAM} username="etl";', "no username and password"),
        (f'{SCRAM} tokenauth="true" username="id" password="s3cret";', "a delegation token"),
        ("io.example.VaultLoginModule required path='s3cret';", "io.example.VaultLoginModule, a login that librdkafka"),
        ("${JAAS}", "Or give what is in it apart"),
    ],
)
def test_a_jaas_line_that_gives_no_login_is_refused_without_its_values(refused, jaas: str, words: str) -> None:
    assert words in refused(f"security.protocol=SASL_SSL\nsasl.jaas.config={jaas}\n")


IAM = (
    "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n"
    "sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler\n"
    "sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required"
)

IAM_BEARER = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"


def test_msk_iam_keeps_its_name_and_the_credentials_of_the_process(taken) -> None:
    wanted = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
    assert taken(f"{IAM};\n").client == wanted
    handler = f"sasl.login.callback.handler.class={IAM_BEARER}\n"
    assert taken(f"security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n{handler}").client == wanted


def test_an_iam_role_in_a_jaas_line_is_refused_by_its_name(refused) -> None:
    assert "names awsRoleArn" in refused(f'{IAM} awsRoleArn="arn:aws:iam::1:role/x";\n')
    bearer = f"{BEARER} awsRoleArn='arn:aws:iam::1:role/x';\nsasl.login.callback.handler.class={IAM_BEARER}\n"
    assert "names awsRoleArn" in refused(f"sasl.mechanism=OAUTHBEARER\n{bearer}")


TOKEN = "sasl.mechanism=OAUTHBEARER\nsasl.oauthbearer.token.endpoint.url=https://id/token\n"
BEARER = "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.mark.parametrize(
    "text",
    [
        f"{TOKEN}{BEARER} clientId='etl' clientSecret='s3' scope='kafka' extension_logicalCluster='lkc-1';\n",
        f"sasl.mechanism=OAUTHBEARER\n{BEARER} oauth.client.id='etl' oauth.client.secret='s3' oauth.scope='kafka' "
        "oauth.token.endpoint.uri='https://id/token' extension_logicalCluster='lkc-1';\n"
        "sasl.login.callback.handler.class=io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler\n",
        f"{TOKEN}{BEARER} extension_logicalCluster='lkc-1';\nsasl.oauthbearer.client.credentials.client.id=etl\n"
        "sasl.oauthbearer.client.credentials.client.secret=s3\nsasl.oauthbearer.scope=kafka\n",
    ],
)
def test_client_credentials_become_librdkafkas_openid_connect(properties, text: str) -> None:
    assert properties(text) == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://id/token",
        "sasl.oauthbearer.client.id": "etl",
        "sasl.oauthbearer.client.secret": "s3",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "logicalCluster=lkc-1",
    }


def test_a_token_without_a_client_is_refused(refused) -> None:
    said = refused(f"{TOKEN}{BEARER} clientSecret='s3cret';\n")
    assert "the login is OAUTHBEARER, and there is no sasl.oauthbearer.client.id in it" in said
    assert "docs/how-to/secure-connections.md" in said


# ---------------------------------------------------------------- values that are elsewhere


@pytest.mark.parametrize("provider", ["file", "vault", "KAFKA_PASSWORD", "secrets:ns/s3cret"])
def test_a_placeholder_that_is_filled_in_elsewhere_is_named(refused, provider: str) -> None:
    said = refused(f'sasl.jaas.config={SCRAM} username="etl" password="${{{provider}:s3cret}}";\n')
    assert (
        f"sasl.jaas.config has ${{{provider.partition(':')[0]}:…}}, a placeholder of Kafka's config providers" in said
    )
    assert "Write ${NAME}" in said


def test_placeholders_for_variables_and_files_are_filled_in(properties, refused, tmp_path: Path) -> None:
    (tmp_path / "held.properties").write_text("user = etl\npassword=s\\u0033\n")
    held, jaas = f"${{file:{tmp_path}/held.properties:", f"sasl.jaas.config={SCRAM} username="
    assert properties(f'{jaas}"{held}user}}" password="{held}password}}";\n') == LOGIN
    assert properties(f"{jaas}'${{env:USER}}' password='${{dir:/run/secrets:password}}';\n") == {
        "sasl.username": "${USER}",
        "sasl.password": "file:/run/secrets/password",
    }
    assert "held.properties has no pass" in refused(f'{jaas}"x" password="{held}pass}}";\n')
    assert "/no/such cannot be read" in refused(f'{jaas}"x" password="${{file:/no/such:key}}";\n')
    assert "${dir:…}, a placeholder" in refused(f'{jaas}"x" password="my-${{dir:/run:key}}";\n')


def test_variables_and_files_of_this_product_stay(properties) -> None:
    assert properties(f'sasl.jaas.config={SCRAM} username="${{USER}}" password="file:/run/s3";\n') == {
        "sasl.username": "${USER}",
        "sasl.password": "file:/run/s3",
    }


def test_a_key_store_in_pem_holds_key_and_certificates(properties) -> None:
    text = "ssl.keystore.location=/etc/me.pem\nssl.keystore.type=PEM\n"
    assert properties(text) == {"ssl.certificate.location": "/etc/me.pem", "ssl.key.location": "/etc/me.pem"}


# ---------------------------------------------------------------- what is left out, and what is another file


def test_settings_of_other_clients_are_left_out_by_name(taken) -> None:
    others = (
        *("ssl.enabled.protocols", "ssl.protocol", "ssl.cipher.suites", "schema.registry.url", "key.serializer"),
        *("basic.auth.user.info", "interceptor.classes", "confluent.monitoring.interceptor.bootstrap.servers"),
        *("specific.avro.reader", "value.subject.name.strategy", "partition.assignment.strategy", "transactional.id"),
    )
    found = taken("security.protocol=SSL\n" + "".join(f"{name}=s3cret\n" for name in others))
    assert found.client == {"security.protocol": "SSL"}
    assert found.left_out == others


def test_every_fault_is_listed(refused) -> None:
    said = refused(
        "ssl.truststore.location=/etc/trust.jks\nssl.keystore.location=/etc/key.jks\nsasl.mechanism=GSSAPI\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required;\nssl.key.password=${vault:a:b}\n"
    )
    assert all(word in said for word in ("ssl.truststore.location", "ssl.keystore.location", "Kerberos", "${vault:…}"))


MIRRORS, CLIENTS = "MirrorMaker's configuration", "not the properties of a client"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("clusters = a, b\na.bootstrap.servers = a:9092\na->b.enabled=true", MIRRORS),
        ("name=x\nsource.cluster.alias=a\ntarget.cluster.alias=b", MIRRORS),
        ("apiVersion: kafka.strimzi.io/v1\nkind: KafkaMirrorMaker2\n", MIRRORS),
        ("apiVersion: v1\ndata:\n  password: czNjcmV0\nkind: Secret\n", "a client: it has apiVersion."),
        ('{"name": "x"}', CLIENTS),
        ("bootstrap.servers=b:9092\ngroup.id=c\nconfig.storage.topic=c", "it has config.storage.topic."),
        ("name=r\nconnector.class=io.X\n", "it has connector.class."),
        ("node.id=1\nlisteners=PLAINTEXT://:9092\nlog.dirs=/d\n", "it has node.id."),
        ("KafkaClient {\n  x.PlainLoginModule required username='a' password='s3cret';\n};", "in one line"),
        ("[clusters.b]\nbootstrap_servers = 'b:9092'\n", CLIENTS),
        ("-----BEGIN PRIVATE KEY-----\ns3cret", CLIENTS),
        (b"\xfe\xed\xfe\xed\0\0", "not a text file"),
    ],
)
def test_another_file_is_refused(refused, text: str | bytes, what: str) -> None:
    assert what in refused(text)
