"""Translates client settings of Kafka's Java tools to librdkafka's, which a configuration holds.

A properties file may be one of Kafka's Java tools (``--command-config``) or one of librdkafka's, in which a backslash
is a character like others. Java's properties are translated if they have a counterpart (names: librdkafka's
CONFIGURATION.md), and left out if they are not about the connection, or are for other clients.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.config.addresses import BROKERS_TOO
from reconciler.config.secrets import holds_plain_secret
from reconciler.core.errors import ConfigError, ReconcilerError, together
from reconciler.fileio import why
from reconciler.preflight.given_file import names_in, refuse_other_file
from reconciler.preflight.java_properties import UnreadableText, logical_lines, read_line
from reconciler.preflight.logins import HANDLER, JAAS, login

SERVERS = "bootstrap.servers"
_STORE_KEY = "anchors.store"
"""A key of the configuration that takes a store's address."""

_LIBRDKAFKAS = re.compile(
    r"sasl\.(username|password|mechanisms|oauthbearer\.(method|client\.(id|secret)|extensions|config)"
    r"|kerberos\.(principal|keytab|kinit\.cmd))|ssl\.(ca|crl|certificate|key)\.(location|pem)|metadata\.broker\.list"
)
_JAVAS = re.compile(
    r"sasl\.(jaas\.config|(login|client)\.callback\.handler\.class)|ssl\.truststore\..*"
    r"|ssl\.keystore\.(type|key|certificate\.chain)|ssl\.(protocol|enabled\.protocols)|.*\.(de)?serializer"
)
_LEFT_OUT = re.compile(
    # of consumers, producers and tools: nothing about the connection
    r"group\.(id|instance\.id|protocol|remote\.assignor)|auto\.offset\.reset|enable\.auto\.commit|isolation\.level"
    r"|acks|retries|(default\.api|request|delivery|transaction)\.timeout\.ms|max\.(poll\..*|block\.ms|request\.size)"
    r"|fetch\.max\.wait\.ms|partition\.assignment\.strategy|exclude\.internal\.topics|partitioner\..*|buffer\.memory"
    r"|transactional\.id|metadata\.(max\.idle\.ms|recovery\..*)|(send|receive)\.buffer\.bytes|client\.dns\.lookup"
    r"|socket\.connection\.setup\.timeout\.max\.ms|.*interceptor\.?(class(es)?)?(\..*)?|metrics?\..*"
    r"|auto\.include\.jmx\.reporter|config\.providers(\..*)?|compression\.(gzip|lz4|zstd)\.level|internal\..*|share\..*"
    # of Java's TLS and login
    r"|security\.providers|ssl\.(protocol|enabled\.protocols|provider|(trustmanager|keymanager)\.algorithm)"
    r"|ssl\.secure\.random\.implementation|ssl\.(keystore|truststore)\.type|ssl\.truststore\.password"
    r"|sasl\.login\.(refresh|retry|connect|read)\..*|sasl\.(login|client)\.callback\.handler\.class"
    r"|sasl\.kerberos\.(ticket\.renew\..*|min\.time\.before\.relogin)"
    r"|sasl\.oauthbearer\.(jwks|jwt|expected|clock|header|client\.credentials)\..*"
    # of serializers and schema registries
    r"|(key|value)\.(de)?serializer(\..*)?|.*subject\.name\.strategy|(schema|apicurio)\.registry\..*"
    r"|(basic|bearer)\.auth\..*|auto\.register\.schemas|use\.(latest\.version|schema\.id).*|latest\..*"
    r"|(specific|avro|json|protobuf|derive|rule)\..*|normalize\.schemas|confluent\..*"
)
"""Properties that only other clients read, or that say nothing about the connection."""
_LOOKED_AT = frozenset({HANDLER, "ssl.keystore.type", "ssl.truststore.type", "ssl.truststore.password"})
"""Of these, the ones whose meaning is in other properties of librdkafka."""
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
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]*)-----END \1-----")
_PLACEHOLDER = re.compile(r"\$\{(?P<provider>[^{}:]*):(?P<rest>[^{}]*)\}")
_PROVIDERS = re.compile(r"(strimzi)?(env|file|dir|directory)|secrets?|configmaps?|vault|secretsmanager|ssm")
"""Usual names of config providers (KIP-297). What follows any other name is not shown: it may be a default."""


@dataclass(frozen=True, slots=True)
class GivenClient:
    """librdkafka's properties, and the names of those that were left out."""

    client: dict[str, str]
    left_out: tuple[str, ...] = ()


def read_properties(path: Path) -> GivenClient:
    """A properties file as librdkafka's properties. Raises ConfigError, with all faults, if it cannot be used."""
    text = text_of(path, "--client-config")
    names = names_in(text)
    refuse_other_file(text, names, path)
    is_javas = any(map(_JAVAS.fullmatch, names))
    if not any(map(_LIBRDKAFKAS.fullmatch, names)):
        if unclear := _not_ascii(text):
            raise ConfigError(
                f"{path}: {', '.join(unclear)} has characters that are not ASCII, which Java reads as ISO-8859-1.",
                hint="Write each as \\u and its four hexadecimal digits, as Java's native2ascii does.",
            )
        return translated(parsed(text, str(path)), str(path), is_javas=is_javas)
    given = _plain(text)
    if is_javas and given != parsed(text, str(path)):
        raise ConfigError(
            f"{path} has properties of Java's clients and of librdkafka, which read its backslashes differently.",
            hint="Use the names of one of the two: docs/how-to/secure-connections.md",
        )
    return translated(given, str(path), is_javas=is_javas)


def text_of(path: Path, option: str) -> str:
    """A text file's content. Raises ConfigError if it cannot be read, or is no text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {why(error)}.", hint=f"Correct the path of {option}.") from error
    if b"\0" in data:
        raise ConfigError(f"{path} is not a text file.", hint=f"Give a properties file as {option}.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # as Java reads it


def parsed(text: str, where: str) -> dict[str, str]:
    """The pairs of a properties file, as Java reads it. Raises ConfigError for a line that is none."""
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


def _plain(text: str) -> dict[str, str]:
    """The pairs of one of librdkafka's files, without escapes."""
    lines = [line.strip() for line in text.splitlines()]
    pairs = [re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if line and line[0] not in "#!"]
    return {pair[0]: pair[-1] for pair in pairs}


def _not_ascii(text: str) -> list[str]:
    """Properties with characters that a person reads in UTF-8, and Java in ISO-8859-1."""
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


def translated(given: Mapping[str, str], where: str, *, is_javas: bool = False) -> GivenClient:
    """Java's properties as librdkafka's; others unchanged. Raises ConfigError, with all faults.

    ``is_javas``: of two meanings of a name, Java's is meant.
    """
    faults: list[ReconcilerError] = list(_placeholders(given, where))
    if BROKERS_TOO in given and SERVERS in given:
        problem = f"{where}: {BROKERS_TOO} and {SERVERS} both name the brokers."
        faults.append(ConfigError(problem, hint="Give one of them."))
    client: dict[str, str] = {}
    left_out = [name for name in given if _LEFT_OUT.fullmatch(name) or (is_javas and name == "ssl.cipher.suites")]
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
    return GivenClient(client, tuple(name for name in left_out if name not in _LOOKED_AT))


def _counterpart(name: str, given: Mapping[str, str], where: str) -> dict[str, str]:
    """One property as librdkafka's. Raises ConfigError for a key store that it does not read."""
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
    called = _RENAMED.get(name, name)
    return {called: _pem_lines(value) if called.endswith(".pem") else value}


def _pem_lines(value: str) -> str:
    """PEM with its line ends, which a properties file may hold as blanks or as ``\\n`` (KIP-651)."""
    blocks = _PEM.findall(value.replace("\\r", "").replace("\\n", "\n"))
    return (
        "".join(
            f"-----BEGIN {kind}-----\n{chr(10).join(textwrap.wrap(''.join(body.split()), 64))}\n-----END {kind}-----\n"
            for kind, body in blocks
        )
        or value
    )  # a variable, or a file


def _placeholders(given: Mapping[str, str], where: str) -> Iterator[ConfigError]:
    """Every value that Kafka's config providers would fill in."""
    for name, value in given.items():
        if (found := _PLACEHOLDER.search(value)) is None or _LEFT_OUT.fullmatch(name):
            continue
        provider, rest = found["provider"], found["rest"]
        is_known = _PROVIDERS.fullmatch(provider) is not None
        hint = "Write ${NAME} in its place and set NAME in the environment, or file:PATH of a file that holds it alone."
        if is_known and "env" in provider:
            hint = f"Write ${{{rest}}} in its place: that is a variable of the environment here."
        elif is_known and "dir" in provider:
            hint = f"Write file:{rest.replace(':', '/')} in its place: that is a file's content here."
        yield ConfigError(
            f"{where}: {name} has {found[0] if is_known else f'${{{provider}:…}}'}, a placeholder of Kafka's config "
            "providers, which are not asked here.",
            hint=hint,
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
