"""Text as Kafka's Java programs read it: properties files (``java.util.Properties.load``), the login modules of a JAAS
line (Kafka's ``JaasConfig``), and that login as librdkafka's properties.

Pure. No error repeats a value: it may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconciler.core.errors import ConfigError

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_KEY = re.compile(r"(?P<key>(?:\\.|[^\\=: \t\f])*)[ \t\f]*(?P<mark>[=:]?)[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9A-Fa-f]{4})|(?P<other>.))", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_VALUE = r"""(?:"(?:\\.|[^"\\\r\n])*"|'(?:\\.|[^'\\\r\n])*'|[A-Za-z_$][\w.$-]*)"""
_OPTION = re.compile(rf"\s+([\w.-]+)\s*=\s*({_VALUE})")
_MODULE = re.compile(rf"\s*([\w.$]+)\s+\w+((?:{_OPTION.pattern})*)\s*;")


class UnreadableText(ValueError):
    """Java cannot read it either. The message ends a sentence that begins with the property's name."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry of a JAAS line: the class, and its options."""

    name: str
    options: Mapping[str, str]

    @property
    def kind(self) -> str:
        """The class without its packages, which some distributions rename."""
        return self.name.rpartition(".")[2]


def logical_lines(text: str) -> Iterator[str]:
    """The lines of a properties file without comments and blank ones. One that ends in an odd number of backslashes
    continues in the next; a comment never does."""
    pending: str | None = None
    for line in _LINE_END.split(text):
        line = line.lstrip(_BLANK)
        if pending is None and (not line or line[0] in "#!"):
            continue
        whole = (pending or "") + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = whole[:-1]
            continue
        pending = None
        yield whole
    if pending:
        yield pending


def read_line(line: str) -> tuple[str, str] | None:
    """Name and value of a logical line, as Java reads it. None for a name alone, which no file has on purpose.

    Raises UnreadableText for a ``\\u`` without four hexadecimal digits.
    """
    found = _KEY.match(line)
    if found is None or not found["key"] or (found.end() == len(line) and not found["mark"]):
        return None
    name = line_name(line)
    try:
        return name, _unescaped(line[found.end() :]).strip()  # Kafka trims every value
    except UnreadableText as error:
        raise UnreadableText(f"{name} {error}") from None


def line_name(line: str) -> str:
    """The name in a logical line, with its escapes if Java cannot read them."""
    found = _KEY.match(line)
    key = found["key"] if found else ""
    try:
        return _unescaped(key)
    except UnreadableText:
        return key


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        if found["code"]:
            return chr(int(found["code"], 16))
        if found["other"] == "u":
            raise UnreadableText(r"has \u without four hexadecimal digits behind it")
        return _CONTROLS.get(found["other"], found["other"])

    return _ESCAPE.sub(one, text)


def login_modules(text: str) -> list[LoginModule]:
    """The login modules of a JAAS line. Raises UnreadableText for any but ``MODULE required NAME="VALUE" …;``, also for
    comments and for escapes of characters, which Kafka takes."""
    modules, at = [], 0
    while text[at:].strip():
        if (found := _MODULE.match(text, at)) is None:
            raise UnreadableText('is not LOGIN.MODULE required NAME="VALUE" …;')
        options = {name: _jaas_value(value) for name, value in _OPTION.findall(found[2])}
        modules.append(LoginModule(found[1], options))
        at = found.end()
    return modules


def _jaas_value(text: str) -> str:
    if text[0] not in "\"'":
        return text
    if re.search(r"\\[A-Za-z0-9]", text):
        raise UnreadableText(r"has a character written with \ and a letter or digit: write the character itself")
    return re.sub(r"\\(.)", r"\1", text[1:-1])


# ---------------------------------------------------------------- logins

JAAS = "sasl.jaas.config"
HANDLER = "sasl.login.callback.handler.class"
_OIDC_HANDLERS = ("", "OAuthBearerLoginCallbackHandler", "JaasClientOauthLoginCallbackHandler")
"""Kafka's own, and Strimzi's: both fetch a token by client credentials, as librdkafka does."""
_OTHER_WAYS = (
    "Give a SCRAM login (--client sasl.mechanism=SCRAM-SHA-512 --client sasl.username=USER --client "
    "'sasl.password=${NAME}'), or a client certificate (ssl.certificate.location, ssl.key.location)."
)
IAM = "AWS_MSK_IAM"
_OWN_NAMES = f"Leave {JAAS} out, and give the login in librdkafka's names: docs/how-to/secure-connections.md"
_OWN_FUNCTION = (
    "Leave the login out, and name a function that returns a token and its end, --client oauth=python:MODULE:FUNCTION: "
    "docs/how-to/secure-connections.md"
)


def login(given: Mapping[str, str], where: str) -> dict[str, str]:
    """The login in ``given``, in librdkafka's words; empty if it has none, or has it in these words already.

    Raises ConfigError for one that librdkafka does not have, or that cannot be read.
    """
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "")).upper()
    handler = given.get(HANDLER, "")
    if mechanism == IAM or ".msk.auth.iam." in handler:
        return _iam(given, where)
    if JAAS not in given:
        return _token({}, given, where) if handler and mechanism == "OAUTHBEARER" else {}
    module = _module(given[JAAS], where)
    options = module.options
    match module.kind:
        case "IAMLoginModule":
            return _iam(given, where)
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


def _iam(given: Mapping[str, str], where: str) -> dict[str, str]:
    """Amazon's module takes the process's AWS credentials unless its options say otherwise; its signer always does."""
    options = _module(given[JAAS], where).options if JAAS in given else {}
    if named := sorted({*options} - {"awsDebugCreds"}):
        raise ConfigError(
            f"{where}: the IAM login names {', '.join(named)}, which AWS's signer does not take.",
            hint="Leave it out, and name a profile with that role in AWS_PROFILE.",
        )
    return {"sasl.mechanism": IAM}


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
        known = handler in _OIDC_HANDLERS
        problem = f"there is no {lacks[0]} in it" if known else f"{HANDLER} is {handler}"
        raise ConfigError(
            f"{where}: the login is OAUTHBEARER, and {problem}: librdkafka gets a token by client credentials only.",
            hint=_OWN_NAMES if known else _OWN_FUNCTION,
        )
    return {name: value for name, value in token.items() if value}
