"""Translates client settings of Kafka's Java tools to librdkafka's, which a configuration holds.

A properties file is one of Kafka's Java tools (``--command-config``). A property is translated if it has a counterpart
(names: librdkafka's CONFIGURATION.md), left out if it is not about the connection, and refused by its name otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from reconciler.config.addresses import BROKERS_TOO
from reconciler.config.secrets import holds_plain_secret
from reconciler.core.errors import ConfigError, ReconcilerError, together
from reconciler.fileio import why
from reconciler.preflight.java_properties import JAAS, UnreadableText, line_name, logical_lines, login, read_line

SERVERS = "bootstrap.servers"
_STORE_KEY = "state.store"
"""A key of the configuration that takes a store's address."""

_LIBRDKAFKAS = re.compile(
    r"sasl\.(username|password|mechanisms|oauthbearer\.(method|client\.(id|secret)|extensions|config)"
    r"|kerberos\.(principal|keytab|kinit\.cmd))|ssl\.(ca|crl|certificate|key)\.(location|pem)|metadata\.broker\.list"
)
_CONNECTION = re.compile(
    r"bootstrap\.servers|metadata\.broker\.list|security\.protocol|client\.(id|rack)|broker\.address\.family"
    r"|(sasl|ssl|socket|https?|enable\.ssl)\..*"
)
"""The properties that are taken from a file: connection settings that librdkafka has, or has a counterpart of."""
_JAVAS_ALONE = re.compile(
    r"ssl\.(protocol|enabled\.protocols|provider|(trustmanager|keymanager)\.algorithm|secure\.random\.implementation"
    r"|(keystore|truststore)\.type|truststore\.password)|sasl\.(login|client)\..*"
    r"|sasl\.kerberos\.(ticket\.renew\..*|min\.time\.before\.relogin)|socket\.connection\.setup\.timeout\.max\.ms"
    r"|sasl\.oauthbearer\.(jwks|jwt|expected|clock|header|client\.credentials)\..*"
)
"""Connection settings that librdkafka does not have."""
_OTHER_PROGRAMS = frozenset(
    (
        *("apiVersion", "connector.class", "config.storage.topic", "offset.storage.topic", "key.converter"),
        *("plugin.path", "broker.id", "node.id", "process.roles", "log.dirs", "log.dir", "listeners"),
    )
)
_MIRRORS = frozenset({"clusters", "source.cluster.alias", "target.cluster.alias"})
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_STORES = {
    "ssl.truststore.location": ("PEM", "ssl.ca.location"),
    "ssl.keystore.location": ("PKCS12", "ssl.keystore.location"),
}
"""Java's properties of key stores, the type librdkafka reads, and what it calls them."""
_INLINE = {
    "ssl.truststore.certificates": "ssl.ca.location",
    "ssl.keystore.certificate.chain": "ssl.certificate.location",
    "ssl.keystore.key": "ssl.key.location",
}
"""Java's properties that hold PEM themselves, and the property that names a file of it."""
_PLACEHOLDER = re.compile(r"\$\{(?P<provider>[^{}:]*):(?:(?P<path>[^{}:]*):)?(?P<key>[^{}:]*)[^{}]*\}")
_FOLDERS = frozenset({"dir", "directory", "strimzidir"})
_FILES = frozenset({"file", "strimzifile"})
"""The usual names of Kafka's config providers that read files (KIP-297, KIP-632; Strimzi's under Kafka Connect)."""


@dataclass(frozen=True, slots=True)
class GivenClient:
    """librdkafka's properties, and the names of the properties that were left out."""

    client: dict[str, str]
    left_out: tuple[str, ...] = ()


def read_properties(path: Path) -> GivenClient:
    """A properties file as librdkafka's properties. Raises ConfigError, with all faults, if it cannot be used."""
    text = text_of(path)
    names = [name for line in logical_lines(text) if (name := line_name(line))]
    _refuse_other_file(text, names, path)
    if unclear := _not_ascii(text):
        raise ConfigError(
            f"{path}: {', '.join(unclear)} has characters that are not ASCII, which Java reads as ISO-8859-1.",
            hint="Write each as \\u and its four hexadecimal digits, as Java's native2ascii does.",
        )
    given = parsed(text, str(path))
    # ssl.cipher.suites: by Java's names
    others = {name for name in given if not _CONNECTION.fullmatch(name)} | {"ssl.cipher.suites"}
    found = translated({name: value for name, value in given.items() if name not in others}, str(path))
    left_out = others.union(found.left_out)
    return GivenClient(found.client, tuple(name for name in given if name in left_out))


def _refuse_other_file(text: str, names: Collection[str], path: Path) -> None:
    """Raises ConfigError for a file that is not a Java client's properties. A name in it may be a secret."""
    if "KafkaMirrorMaker2" in text or any(name in _MIRRORS or "->" in name for name in names):
        raise ConfigError(
            f"{path} is MirrorMaker's configuration, not the properties of a client.",
            hint="Give the settings of the destination's client alone; --alias and --name name the clusters.",
        )
    if "\\" in text and (other := next(filter(_LIBRDKAFKAS.fullmatch, names), None)):
        raise ConfigError(
            f"{path} has backslashes, and {other}, a property of librdkafka, which reads them differently from Java.",
            hint="Give each property of librdkafka as --client KEY=VALUE.",
        )
    other = next((f": it has {name}" for name in names if name in _OTHER_PROGRAMS), "")
    if other or not all(map(_NAME.fullmatch, names)):
        raise ConfigError(
            f"{path} is not the properties of a client{other}.",
            hint="Give a file with bootstrap.servers, security.protocol, sasl.mechanism and sasl.jaas.config (in one "
            "line), as kafka-topics.sh --command-config takes it.",
        )


def text_of(path: Path, hint: str = "Correct the path of --client-config.") -> str:
    """A text file's content. Raises ConfigError if it cannot be read, or is not text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {why(error)}.", hint=hint) from error
    if b"\0" in data:
        raise ConfigError(f"{path} is not a text file.", hint="Give a properties file.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # as Java reads it


def parsed(text: str, where: str) -> dict[str, str]:
    """The pairs of a properties file, as Java reads it. Raises ConfigError for a line that is not a pair."""
    given: dict[str, str] = {}
    for line in logical_lines(text):
        try:
            pair = read_line(line)
        except UnreadableText as error:
            raise ConfigError(
                f"{where}: {error}.", hint="Java does not read it either: write each \\ twice."
            ) from error
        if pair is None:
            raise ConfigError(f"{where}: a line is not NAME=VALUE.", hint="Write it as Kafka's tools have it.")
        given[pair[0]] = pair[1]
    return given


def _not_ascii(text: str) -> list[str]:
    """The names of properties with characters that are not ASCII: Java reads the file as ISO-8859-1."""
    lines = (line for line in logical_lines(text) if not line.isascii())
    return [pair[0] for line in lines if (pair := read_line(line)) is not None]


def given_properties(texts: Iterable[str]) -> GivenClient:
    """``KEY=VALUE`` options. Raises ConfigError for any other text, without repeating it."""
    given = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name:
            raise ConfigError("--client takes KEY=VALUE.", hint="For example: --client security.protocol=SASL_SSL")
        given[name] = value
    return translated(given, "--client")


def translated(given: Mapping[str, str], where: str) -> GivenClient:
    """Java's properties as librdkafka's; others unchanged. Raises ConfigError, with all faults."""
    faults: list[ReconcilerError] = []
    given = _provided(given, where, faults)
    if BROKERS_TOO in given and SERVERS in given:
        problem = f"{where}: {BROKERS_TOO} and {SERVERS} both name the brokers."
        faults.append(ConfigError(problem, hint="Give one of them."))
    client: dict[str, str] = {}
    left_out = tuple(name for name in given if _JAVAS_ALONE.fullmatch(name))
    for name in (each for each in given if each != JAAS and each not in left_out):
        try:
            client.update(_counterpart(name, given, where))
        except ConfigError as error:
            faults.append(error)
    try:
        client.update(login(given, where))
    except ConfigError as error:
        faults.append(error)
    if faults:
        raise together(faults)
    return GivenClient(client, left_out)


def _counterpart(name: str, given: Mapping[str, str], where: str) -> dict[str, str]:
    """One property as librdkafka's. Raises ConfigError for one that it does not have."""
    value = given[name]
    if name in _STORES:
        kind, called = _STORES[name]
        stated = given.get(name.replace("location", "type"), _kind_by_name(value) or kind).upper()
        if stated == "PEM" and name == "ssl.keystore.location":  # KIP-651: key and certificates in one file
            return {"ssl.certificate.location": value, "ssl.key.location": value}
        if stated != kind:
            raise ConfigError(
                f"{where}: {name} is a store of type {stated}, which librdkafka does not read.",
                hint=_conversion(name),
            )
        return {called: value}
    if name == "ssl.endpoint.identification.algorithm":
        return {name: value or "none"}
    if name in _INLINE:
        raise ConfigError(
            f"{where}: {name} holds the PEM itself.", hint=f"Put it into a file, and give that as {_INLINE[name]}."
        )
    return {SERVERS if name == BROKERS_TOO else name: value}


def _provided(given: Mapping[str, str], where: str, faults: list[ReconcilerError]) -> dict[str, str]:
    """The properties with what Kafka's config providers fill in; ``faults`` gets each that cannot be had here."""
    filled = {}
    for name, value in given.items():
        filled[name] = value
        if not _JAVAS_ALONE.fullmatch(name):
            try:
                filled[name] = _PLACEHOLDER.sub(partial(_replacement, f"{where}: {name}"), value)
            except ConfigError as error:
                faults.append(error)
    return filled


def _replacement(what: str, found: re.Match[str]) -> str:
    """The replacement of a placeholder: a reference of this product's, or the value. Raises ConfigError without one."""
    provider, path, key = found["provider"], found["path"], found["key"]
    placeholder = f"${{{provider}:…}}"  # what follows may be a default, and a secret
    instead = "Write ${NAME} in its place and set NAME in the environment, or file:PATH of a file that holds it alone."
    text, at = found.string, found.span()
    if provider == "env" and key:
        return f"${{{key}}}"
    if provider in _FOLDERS and path and text[: at[0]][-1:] in ("", '"', "'") and text[at[1] :][:1] in ("", '"', "'"):
        return f"file:{path.rstrip('/')}/{key}"
    if provider in _FILES and path:
        held = parsed(
            text_of(Path(path), f"{what} has {placeholder}: run this where that file is. Or: {instead}"), path
        )
        if key in held:
            return held[key]
        raise ConfigError(f"{what} has {placeholder}, and {path} has no {key}.", hint="Correct one of them.")
    raise ConfigError(
        f"{what} has {placeholder}, a placeholder of Kafka's config providers, which are not asked here.", hint=instead
    )


def _kind_by_name(path: str) -> str | None:
    suffix = Path(path).suffix.lower()
    return {".jks": "JKS", ".p12": "PKCS12", ".pfx": "PKCS12", ".pem": "PEM", ".crt": "PEM", ".cer": "PEM"}.get(suffix)


def _conversion(name: str) -> str:
    if name.startswith("ssl.truststore"):
        return "Export the authority's certificate as PEM (keytool -exportcert -rfc), and give it as ssl.ca.location."
    return "Convert it: keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12"


# ---------------------------------------------------------------- secrets


def client_without_secrets(client: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The settings as a file may hold them, and their secrets by environment variable."""
    safe: dict[str, str] = {}
    needed: dict[str, str] = {}
    for name, value in client.items():
        if holds_plain_secret(f"clusters.client.{name}", value):
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
