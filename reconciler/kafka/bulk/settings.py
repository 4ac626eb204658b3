"""Client settings of librdkafka translated for the bulk reader: all of them, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PROTOCOLS = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
TRANSLATED = frozenset(
    {
        *("bootstrap.servers", "client.id", "security.protocol"),
        *("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
        *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
        *("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"),
    }
)
WITHOUT_EFFECT = frozenset({"log_level", "debug", "log.connection.close", "log.queue", "statistics.interval.ms"})
"""Of the answers, that is: they say what librdkafka reports of itself."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The first brokers to ask, and the options of a connection (``aiokafka.conn.create_conn``)."""

    servers: tuple[tuple[str, int], ...]
    options: Mapping[str, Any]


def translated(client: Mapping[str, Any]) -> Settings | None:
    """None for settings that ask for anything which is not certain to mean the same there.

    Raises OSError (of which the errors of TLS are) for files that cannot be used.
    """
    if not client.keys() <= TRANSLATED | WITHOUT_EFFECT:
        return None
    words = {name: str(value) for name, value in client.items()}
    servers = tuple(_servers(words.get("bootstrap.servers", "")))
    protocol = words.get("security.protocol", "PLAINTEXT").upper()
    if not servers or protocol not in PROTOCOLS:
        return None
    options: dict[str, Any] = {"client_id": words.get("client.id", "reconciler"), "security_protocol": protocol}
    if protocol.startswith("SASL"):
        named = [words[name] for name in ("sasl.mechanism", "sasl.mechanisms") if name in words]
        if len(named) != 1 or named[0] not in MECHANISMS or not {"sasl.username", "sasl.password"} <= words.keys():
            return None
        options["sasl_mechanism"] = named[0]
        options["sasl_plain_username"] = words["sasl.username"]
        options["sasl_plain_password"] = words["sasl.password"]
    if protocol.endswith("SSL"):
        context = _tls(words)
        if context is None:
            return None
        options["ssl_context"] = context
    return Settings(servers, options)


def _servers(text: str) -> list[tuple[str, int]]:
    """``HOST:PORT,…``; nothing if one of them is written in another way."""
    found = []
    for each in text.split(","):
        host, _, port = each.strip().rpartition(":")
        if not host or not port.isdecimal() or set(host) & set("/[]: "):
            return []
        found.append((host, int(port)))
    return found


def _tls(words: Mapping[str, str]) -> Any:
    """The context for TLS. Without a file of authorities librdkafka takes the system's, which Python may not find."""
    import ssl

    named = words.get("ssl.endpoint.identification.algorithm", "https")
    pair = {"ssl.certificate.location", "ssl.key.location"} & words.keys()
    if "ssl.ca.location" not in words or named not in ("https", "none") or len(pair) == 1:
        return None
    if words.get("enable.ssl.certificate.verification", "true").lower() != "true":
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = named == "https"
    context.load_verify_locations(cafile=words["ssl.ca.location"])
    if pair:
        # Without a password OpenSSL would ask at the terminal for that of an encrypted key.
        password = words.get("ssl.key.password", "")
        context.load_cert_chain(words["ssl.certificate.location"], words["ssl.key.location"], password)
    return context
