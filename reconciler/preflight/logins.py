"""The login of Kafka's Java clients (a JAAS line, and properties beside it) as librdkafka's properties. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.core.errors import ConfigError
from reconciler.preflight.java_properties import LoginModule, UnreadableText, login_modules

JAAS = "sasl.jaas.config"
HANDLER = "sasl.login.callback.handler.class"
_OIDC_HANDLERS = ("", "OAuthBearerLoginCallbackHandler", "JaasClientOauthLoginCallbackHandler")
"""Kafka's own, and Strimzi's: both fetch a token by client credentials, as librdkafka does."""
_OTHER_WAYS = (
    "Give a SCRAM login (--client sasl.mechanism=SCRAM-SHA-512 --client sasl.username=USER --client "
    "'sasl.password=${NAME}'), or a client certificate (ssl.certificate.location, ssl.key.location)."
)
_OWN_NAMES = f"Leave {JAAS} out, and give the login in librdkafka's names: docs/how-to/secure-connections.md"


def login(given: Mapping[str, str], where: str) -> dict[str, str]:
    """The login in ``given``, in librdkafka's words; empty if it has none, or has it in these words already.

    Raises ConfigError for one that librdkafka does not have, or that cannot be read.
    """
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "")).upper()
    handler = given.get(HANDLER, "")
    if mechanism == "AWS_MSK_IAM" or ".msk.auth.iam." in handler:
        raise _no_iam(where)
    if JAAS not in given:
        return _token({}, given, where) if handler and mechanism == "OAUTHBEARER" else {}
    module = _module(given[JAAS], where)
    options = module.options
    match module.kind:
        case "IAMLoginModule":
            raise _no_iam(where)
        case "Krb5LoginModule":
            raise ConfigError(  # librdkafka from PyPI has no Kerberos, and its own build may use other files
                f"{where}: the login is Kerberos, which only some builds of librdkafka have.", hint=_OWN_NAMES
            )
        case "OAuthBearerLoginModule":
            return _token(options, given, where)
        case "PlainLoginModule" | "ScramLoginModule":
            return _password(options, where)
    raise ConfigError(f"{where}: {JAAS} names {module.name}, a login that librdkafka does not have.", hint=_OTHER_WAYS)


def _module(jaas: str, where: str) -> LoginModule:
    try:
        modules = login_modules(jaas)
    except UnreadableText as error:
        raise ConfigError(
            f"{where}: {JAAS} {error}.",
            hint="Or give what is in it apart: --client sasl.username=USER --client 'sasl.password=${NAME}'",
        ) from error
    if len(modules) != 1:
        raise ConfigError(f"{where}: {JAAS} has {len(modules)} login modules.", hint="Leave one, as Kafka demands.")
    return modules[0]


def _password(options: Mapping[str, str], where: str) -> dict[str, str]:
    if options.get("tokenauth", "").lower() == "true":
        raise ConfigError(
            f"{where}: the login is a delegation token (tokenauth), which librdkafka does not have.", hint=_OTHER_WAYS
        )
    if "username" not in options or "password" not in options:
        raise ConfigError(
            f"{where}: {JAAS} has no username and password.",
            hint="Give them: --client sasl.username=USER --client 'sasl.password=${NAME}'",
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _no_iam(where: str) -> ConfigError:
    return ConfigError(f"{where}: the login is AWS MSK IAM, which is not supported.", hint=_OTHER_WAYS)


def _token(options: Mapping[str, str], given: Mapping[str, str], where: str) -> dict[str, str]:
    """Client credentials of Kafka's and of Strimzi's handler, as librdkafka's OpenID Connect."""

    def first(*names: str) -> str:
        return next((found for name in names if (found := options.get(name) or given.get(name))), "")

    token = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": first("sasl.oauthbearer.token.endpoint.url", "oauth.token.endpoint.uri"),
        "sasl.oauthbearer.client.id": first(
            "clientId", "oauth.client.id", "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id"
        ),
        "sasl.oauthbearer.client.secret": first(
            *("clientSecret", "oauth.client.secret", "sasl.oauthbearer.client.credentials.client.secret"),
            "sasl.oauthbearer.client.secret",
        ),
        "sasl.oauthbearer.scope": first("scope", "oauth.scope", "sasl.oauthbearer.scope"),
        "sasl.oauthbearer.extensions": ",".join(
            f"{name.removeprefix('extension_')}={value}"
            for name, value in options.items()
            if name.startswith("extension_")
        ),
    }
    handler = given.get(HANDLER, "").rpartition(".")[2]
    lacks = [name for name in (*token,)[1:4] if not token[name]]
    if handler not in _OIDC_HANDLERS or lacks:
        problem = f"there is no {lacks[0]} in it" if handler in _OIDC_HANDLERS else f"{HANDLER} is {handler}"
        raise ConfigError(
            f"{where}: the login is OAUTHBEARER, and {problem}: librdkafka gets a token by client credentials only.",
            hint=_OWN_NAMES,
        )
    return {name: value for name, value in token.items() if value}
