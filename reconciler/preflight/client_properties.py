"""Translates client settings of Kafka's Java tools to librdkafka's, which a configuration holds.

A properties file may be one of Kafka's Java tools (``--command-config``) or one of librdkafka's. Java's properties are
translated if they have a counterpart (names: librdkafka's CONFIGURATION.md), and left out if they are not about the
connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from reconciler.config.addresses import BROKERS_TOO
from reconciler.config.secrets import holds_plain_secret
from reconciler.core.errors import ConfigError
from reconciler.fileio import why

SERVERS = "bootstrap.servers"
_STORE_KEY = "anchors.store"
"""A key of the configuration that takes a store's address."""

_LINE = re.compile(r"\s*(?P<name>[^\s=:#!][^\s=:]*)\s*[=:\s]\s*(?P<value>.*?)\s*")
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]+)""")
_NOT_ABOUT_CONNECTIONS = re.compile(
    r"(key|value)\.(de)?serializer|group\.id|auto\.offset\.reset|enable\.auto\.commit|acks|retries|"
    r"(default\.api|request|delivery)\.timeout\.ms|max\.poll\..*|client\.dns\.lookup|isolation\.level|"
    r"ssl\.(keystore|truststore)\.type|sasl\.login\.callback\.handler\.class|sasl\.client\.callback\.handler\.class"
)
_STORES = {
    "ssl.truststore.location": ("PEM", "ssl.ca.location"),
    "ssl.keystore.location": ("PKCS12", "ssl.keystore.location"),
}
"""Java's properties of key stores, the type librdkafka reads, and what it calls them."""
_RENAMED = {
    BROKERS_TOO: SERVERS,
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}


def read_properties(path: Path) -> dict[str, str]:
    """A properties file as librdkafka's properties. Raises ConfigError if it cannot be read or translated."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The client's settings {path} cannot be read: {why(error)}.", hint="Correct the path of --client-config."
        ) from error
    given: dict[str, str] = {}
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ConfigError(f"{path}: a line is not NAME=VALUE.", hint="Write it as Kafka's tools have it.")
        given[found["name"]] = found["value"]
    return translated(given, str(path))


def given_properties(texts: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` options. Raises ConfigError for any other text, without repeating it."""
    given = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name:
            raise ConfigError("--client takes KEY=VALUE.", hint="For example: --client security.protocol=SASL_SSL")
        given[name] = value
    return translated(given, "--client")


def translated(given: Mapping[str, str], where: str) -> dict[str, str]:
    """Java's properties as librdkafka's; others unchanged."""
    if BROKERS_TOO in given and SERVERS in given:
        raise ConfigError(f"{where}: {BROKERS_TOO} and {SERVERS} both name the brokers.", hint="Give one of them.")
    client: dict[str, str] = {}
    for name, value in given.items():
        if name == "sasl.jaas.config":
            client.update(_login(value, where))
        elif name in _STORES:
            kind, called = _STORES[name]
            stated = given.get(name.replace("location", "type"), _kind_by_name(value) or kind).upper()
            if stated != kind:
                raise ConfigError(
                    f"{where}: {name} is a store of type {stated}, which librdkafka does not read.",
                    hint=_conversion(name),
                )
            client[called] = value
        elif name == "ssl.truststore.password" or _NOT_ABOUT_CONNECTIONS.fullmatch(name):
            continue
        elif name == "ssl.endpoint.identification.algorithm":
            client[name] = value or "none"
        else:
            client[_RENAMED.get(name, name)] = value
    return client


def _kind_by_name(path: str) -> str | None:
    suffix = Path(path).suffix.lower()
    return {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12", ".pem": "PEM", ".crt": "PEM", ".cer": "PEM"}.get(suffix)


def _conversion(name: str) -> str:
    if name.startswith("ssl.truststore"):
        return "Export the authority's certificate as PEM (keytool -exportcert -rfc), and give it as ssl.ca.location."
    return "Convert it: keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12"


def _login(jaas: str, where: str) -> dict[str, str]:
    """User and password of a JAAS line of Kafka's login modules for PLAIN and SCRAM."""
    options = {name: _unquoted(value) for name, value in _JAAS_OPTION.findall(jaas)}
    if "username" not in options or "password" not in options:
        raise ConfigError(
            f"{where}: sasl.jaas.config has no username and password.",
            hint="Give librdkafka's own properties for that mechanism: docs/how-to/secure-connections.md",
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


# ---------------------------------------------------------------- secrets


def client_without_secrets(client: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The settings as a file may hold them, and their secrets by environment variable."""
    safe: dict[str, str] = {}
    needed: dict[str, str] = {}
    for name, value in client.items():
        if holds_plain_secret(f"destination.client.{name}", value):
            variable = "RECONCILER_" + re.sub(r"[^A-Za-z0-9]+", "_", name).upper()
            needed[variable], value = value, f"${{{variable}}}"
        safe[name] = value
    return safe, needed


def address_without_secret(address: str, variable: str) -> tuple[str, dict[str, str]]:
    """A store's address without its password, and the password by environment variable.

    Raises ConfigError for an address with a secret in an unusual place.
    """
    if not holds_plain_secret(_STORE_KEY, address):
        return address, {}
    for pattern in (
        r"(?<=://)(?P<before>[^:/@]*:)(?P<secret>[^@/]+)(?=@)",
        r"(?P<before>[?&]password=)(?P<secret>[^&#]+)",
    ):
        found = re.search(pattern, address)
        if found is None:
            continue
        safe = f"{address[: found.start()]}{found['before']}${{{variable}}}{address[found.end() :]}"
        if not holds_plain_secret(_STORE_KEY, safe):
            return safe, {variable: found["secret"]}
    raise ConfigError(
        "The store's address holds a secret.", hint="Write ${NAME} in its place (in single quotes), and set NAME."
    )
