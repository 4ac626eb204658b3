"""A cluster's login as options of Spark's Kafka source, which takes the names of Java's client (``kafka.…``).

Certificates and keys go along as text, so that executors need no file of theirs. Databricks renames the packages of its
Kafka client, and of Amazon's login for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.core.errors import ConfigError
from reconciler.fileio import why
from reconciler.kafka.tokens import IAM, OAUTH

_OWN = re.compile(r"kafka\.(security\.protocol|sasl\.|ssl\.)", re.IGNORECASE)
_SECURITY = "org.apache.kafka.common.security"
_MSK = "software.amazon.msk.auth.iam"
_OIDC = "sasl.oauthbearer."
_KEY = "PRIVATE KEY"


def with_login(
    client: Mapping[str, Any], options: Mapping[str, str] | None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Spark's ``options`` with the login of ``client`` (librdkafka's properties), unless they have one of their own.

    Raises ConfigError for a login that Spark does not have, and for a file that cannot be read.
    """
    given = dict(options or {})
    if any(map(_OWN.match, given)):
        return given
    mechanism = str(client.get("sasl.mechanism", client.get("sasl.mechanisms", "GSSAPI")))
    by_token = mechanism == IAM or OAUTH in client
    protocol = str(client.get("security.protocol", "SASL_SSL" if by_token else "PLAINTEXT")).upper()
    login: dict[str, str] = {}
    if protocol.startswith("SASL_"):
        login |= _sasl(mechanism.upper(), client, is_databricks="DATABRICKS_RUNTIME_VERSION" in environ)
    if protocol.endswith("SSL"):
        login |= _tls(client)
    if protocol != "PLAINTEXT":
        login["security.protocol"] = protocol
    return {**{f"kafka.{name}": value for name, value in login.items()}, **given}


def _refused(what: str, hint: str = "") -> ConfigError:
    return ConfigError(
        f"Spark's Kafka source cannot log in as the client settings say: {what}.",
        hint=hint or "Give Spark its own login as options, in Java's names: kafka.security.protocol, kafka.sasl.…",
    )


# ---------------------------------------------------------------- SASL


def _sasl(mechanism: str, client: Mapping[str, Any], *, is_databricks: bool) -> dict[str, str]:
    kafkas = f"kafkashaded.{_SECURITY}" if is_databricks else _SECURITY
    if mechanism == IAM:
        amazons = f"shadedmskiam.{_MSK}" if is_databricks else _MSK
        return {
            "sasl.mechanism": IAM,
            "sasl.jaas.config": _jaas(f"{amazons}.IAMLoginModule", {}),
            "sasl.client.callback.handler.class": f"{amazons}.IAMClientCallbackHandler",
        }
    if OAUTH in client:
        raise _refused(f"its token comes from {client[OAUTH]}, which Java cannot call")
    if mechanism == "OAUTHBEARER" and str(client.get(f"{_OIDC}method", "")).lower() == "oidc":
        return _oidc(kafkas, client)
    if mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        raise _refused(f"sasl.mechanism is {mechanism}")
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    names = {"username": "sasl.username", "password": "sasl.password"}
    login = {name: str(client.get(theirs, "")) for name, theirs in names.items()}
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": _jaas(f"{kafkas}.{module}", login)}


def _oidc(kafkas: str, client: Mapping[str, Any]) -> dict[str, str]:
    if "https.ca.location" in client:
        raise _refused("https.ca.location names an authority for the provider of its tokens")
    if f"{_OIDC}client.secret" not in client:
        raise _refused("its token is not fetched with a client's secret")
    names = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
    login = {name: str(client[_OIDC + theirs]) for name, theirs in names.items() if _OIDC + theirs in client}
    extensions = filter(None, str(client.get(f"{_OIDC}extensions", "")).split(","))
    login |= {f"extension_{name.strip()}": value for name, _, value in (each.partition("=") for each in extensions)}
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": _jaas(f"{kafkas}.oauthbearer.OAuthBearerLoginModule", login),
        "sasl.login.callback.handler.class": f"{kafkas}.oauthbearer.OAuthBearerLoginCallbackHandler",
        f"{_OIDC}token.endpoint.url": str(client.get(f"{_OIDC}token.endpoint.url", "")),
    }


def _jaas(module: str, login: Mapping[str, str]) -> str:
    quoted = {name: re.sub(r'(["\\])', r"\\\1", value) for name, value in login.items()}
    return " ".join([f"{module} required", *(f'{name}="{value}"' for name, value in quoted.items())]) + ";"


# ---------------------------------------------------------------- TLS


def _tls(client: Mapping[str, Any]) -> dict[str, str]:
    if str(client.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        raise _refused("enable.ssl.certificate.verification is false, which Java does not have")
    found: dict[str, str] = {}
    if certificates := _pem(client, "ca", "CERTIFICATE"):
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates}
    if (store := client.get("ssl.keystore.location")) is not None:
        found |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(store)}
        found["ssl.keystore.password"] = str(client.get("ssl.keystore.password", ""))
    elif chain := _pem(client, "certificate", "CERTIFICATE"):
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain}
        found["ssl.keystore.key"] = _key(client)
        if "ssl.key.password" in client:
            found["ssl.key.password"] = str(client["ssl.key.password"])
    checked = str(client.get("ssl.endpoint.identification.algorithm", "https")).lower()
    return found if checked == "https" else {**found, "ssl.endpoint.identification.algorithm": ""}


def _key(client: Mapping[str, Any]) -> str:
    """The private key. Java reads no other form than PKCS#8."""
    for kind in (_KEY, f"ENCRYPTED {_KEY}"):
        if key := _pem(client, "key", kind):
            return key
    raise _refused("its key is not in PKCS#8", hint="Convert it: openssl pkcs8 -topk8 -in KEY -out NEW")


def _pem(client: Mapping[str, Any], name: str, kind: str) -> str:
    """The PEM blocks of this kind in ``ssl.NAME.pem``, or in the file ``ssl.NAME.location``; empty without any."""
    return "\n".join(_blocks(_text(client, f"ssl.{name}"), kind))


def _text(client: Mapping[str, Any], name: str) -> str:
    path = client.get(f"{name}.location")
    if path is None:
        return str(client.get(f"{name}.pem", ""))
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError as error:
        raise _refused(f"{name}.location names {path}, which cannot be read: {why(error)}") from error


def _blocks(text: str, kind: str) -> Iterator[str]:
    for found in re.finditer(rf"-----BEGIN {kind}-----.+?-----END {kind}-----", text, re.DOTALL):
        yield found[0]
