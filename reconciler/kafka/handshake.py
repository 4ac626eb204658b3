"""A look at a broker's address where the client could not get in: what is spoken there, and what is asked for.

The client library says of a failed connection little that can be relied on: one text for a wrong authority and a wrong
host name, none at all for a port that speaks TLS. So the address is tried once more, with this process's own TLS and
one request that needs no permission and holds no secret: SaslHandshake (Kafka protocol, key 17), which a port without
logins answers with ILLEGAL_SASL_STATE, and one with logins with the mechanisms it knows.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.kafka.errors import SECTION

PATIENCE_S = 2.0
"""Seconds for each connection, and for each answer on it."""
_MOST_ADDRESSES = 3
_ILLEGAL_SASL_STATE = 34
_LONGEST_ANSWER = 64 * 1024
_NAME_MISMATCH = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_OUT_OF_DATE = (9, 10)  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why the client does not get in, as the rest of a sentence about the cluster; and what to do."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class _Wish:
    """What the client was told to do at the address, and what it said of its last try."""

    client: Mapping[str, str]
    said: str

    @property
    def protocol(self) -> str:
        return self.client.get("security.protocol", "PLAINTEXT").upper()

    @property
    def tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def login(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def mechanism(self) -> str:
        return self.client.get("sasl.mechanism") or self.client.get("sasl.mechanisms") or "GSSAPI"

    @property
    def shows_certificate(self) -> bool:
        names = ("ssl.keystore.location", "ssl.certificate.location", "ssl.certificate.pem")
        return any(name in self.client for name in names)

    def context(self, *, trusting: bool = False) -> ssl.SSLContext:
        """TLS as the client was told to do it; ``trusting`` whoever answers, to see that it is TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        verify = self.client.get("enable.ssl.certificate.verification", "true").lower() in ("true", "1", "t")
        named = self.client.get("ssl.endpoint.identification.algorithm", "https").lower() != "none"
        context.check_hostname = verify and named and not trusting
        context.verify_mode = ssl.CERT_REQUIRED if verify and not trusting else ssl.CERT_NONE
        place, text = self.client.get("ssl.ca.location"), self.client.get("ssl.ca.pem")
        if trusting or not verify:
            pass
        elif text is not None:
            context.load_verify_locations(cadata=text)
        elif place is not None and place != "probe":
            context.load_verify_locations(place)
        else:
            context.load_default_certs()
        return context


def look(client: Mapping[str, str], said: str) -> Obstacle | None:
    """What keeps this client out for as long as nobody changes anything; None where nothing of that kind is seen.

    ``said``: what the client last said of its connections. A certificate is blamed only where the client did so too:
    it may read other files, and hold another certificate, than this look does.
    """
    wish = _Wish(client, said.lower())
    for host, port in _addresses(client.get("bootstrap.servers", ""))[:_MOST_ADDRESSES]:
        try:
            found = _look_in(wish, host, port) if wish.tls else _look_at(wish, host, port)
        except (OSError, ValueError):  # not there, or not Kafka's protocol: nothing definite
            continue
        if found is not None:
            return found
    return None


def _addresses(servers: str) -> list[tuple[str, int]]:
    """Hosts and ports of ``bootstrap.servers``, each perhaps as ``protocol://host:port`` or ``[host]:port``."""
    found = []
    for server in servers.split(","):
        host, colon, port = server.strip().rpartition("://")[2].rpartition(":")
        if not colon or port.endswith("]"):
            host, port = server.strip().rpartition("://")[2], "9092"
        if host and port.isdecimal():
            found.append((host.strip("[]"), int(port)))
    return found


def _look_in(wish: _Wish, host: str, port: int) -> Obstacle | None:
    """At a port that should speak TLS."""
    try:
        mechanisms = _ask(host, port, wish.mechanism, wish.context())
    except ssl.SSLCertVerificationError as error:
        return _distrusted(error, host) if "certificate" in wish.said else None
    except OSError as error:
        if isinstance(error, ssl.SSLError) and "alert" in str(error).lower():
            return _sent_away(wish, error)
        mechanisms = _ask(host, port, wish.mechanism)  # answers without TLS, or raises again
        plain = "PLAINTEXT" if mechanisms is None else "SASL_PLAINTEXT"
        return Obstacle(
            f"answers without TLS at {host}:{port}, and security.protocol is {wish.protocol}",
            f'Take the port that speaks TLS, or set security.protocol = "{plain}" under {SECTION} (not encrypted).',
        )
    return _login_differs(wish, mechanisms, host, port)


def _look_at(wish: _Wish, host: str, port: int) -> Obstacle | None:
    """At a port that should speak without TLS."""
    try:
        mechanisms = _ask(host, port, wish.mechanism)
    except TimeoutError:
        return None  # frozen, or far too busy: it would not answer in TLS either
    except (OSError, ValueError):
        try:
            mechanisms = _ask(host, port, wish.mechanism, wish.context(trusting=True))
        except ssl.SSLError as error:
            if "alert" not in str(error).lower():
                raise
            mechanisms = None  # it spoke TLS, and wants a certificate
        protocol = "SSL" if mechanisms is None else "SASL_SSL"
        return Obstacle(
            f"speaks only TLS at {host}:{port}, and security.protocol is {wish.protocol}",
            f'Set security.protocol = "{protocol}" under {SECTION}.',
        )
    return _login_differs(wish, mechanisms, host, port)


def _distrusted(error: ssl.SSLCertVerificationError, host: str) -> Obstacle:
    if error.verify_code in _NAME_MISMATCH:
        return Obstacle(
            f"shows a certificate that is not made out to the name {host}",
            "Use the name that the certificate holds in bootstrap_servers, or have it made out to this one.",
        )
    if error.verify_code in _OUT_OF_DATE:
        return Obstacle(
            f"shows a certificate that is not valid now ({error.verify_message})",
            "Ask its administrator for a new one, and look at this machine's clock.",
        )
    return Obstacle(
        f"shows a certificate that no authority trusted here has signed ({error.verify_message})",
        f"Set ssl.ca.location under {SECTION} to the certificate of the authority that signed the brokers'.",
    )


def _sent_away(wish: _Wish, error: ssl.SSLError) -> Obstacle | None:
    if wish.shows_certificate and "alert" not in wish.said:
        return None
    if wish.shows_certificate:
        return Obstacle(
            f"does not accept the client's certificate ({error.reason})",
            "Have it signed by an authority that the brokers trust, or use another.",
        )
    return Obstacle(
        "asks for a client certificate, and none is configured",
        f"Set ssl.keystore.location, or ssl.certificate.location and ssl.key.location, under {SECTION}.",
    )


def _login_differs(wish: _Wish, mechanisms: list[str] | None, host: str, port: int) -> Obstacle | None:
    over = "SSL" if wish.tls else "PLAINTEXT"
    if wish.login and mechanisms is None:
        return Obstacle(
            f"takes no logins at {host}:{port}, and security.protocol is {wish.protocol}",
            f'Take the port for logins, or set security.protocol = "{over}" under {SECTION}.',
        )
    if mechanisms is not None and not wish.login:
        return Obstacle(
            f"wants a login ({', '.join(mechanisms)}) at {host}:{port}, and security.protocol is {wish.protocol}",
            f'Set security.protocol = "SASL_{over}", sasl.mechanism, sasl.username and sasl.password under {SECTION}.',
        )
    return None


def _ask(host: str, port: int, mechanism: str, context: ssl.SSLContext | None = None) -> list[str] | None:
    """The mechanisms of a port with logins; None of one without. Raises OSError or ValueError for anything else."""
    with socket.create_connection((host, port), PATIENCE_S) as plain:
        if context is None:
            return _shake_hands(plain, mechanism)
        with context.wrap_socket(plain, server_hostname=host) as wrapped:
            return _shake_hands(wrapped, mechanism)


def _shake_hands(connection: socket.socket, mechanism: str) -> list[str] | None:
    """SaslHandshake, version 1: key, version, correlation id, client id; then the mechanism asked for."""
    name = mechanism.encode()
    request = struct.pack(">hhih10s", 17, 1, 1, 10, b"reconciler") + struct.pack(f">h{len(name)}s", len(name), name)
    connection.sendall(struct.pack(">i", len(request)) + request)
    (length,) = struct.unpack(">i", _receive(connection, 4))
    if not 10 <= length <= _LONGEST_ANSWER:
        raise ValueError("not an answer of Kafka's")
    answer = _receive(connection, length)
    correlation, code, count = struct.unpack_from(">ihi", answer)
    if correlation != 1:
        raise ValueError("not an answer to what was asked")
    if code == _ILLEGAL_SASL_STATE:
        return None
    found, at = [], 10
    for _ in range(count):
        (size,) = struct.unpack_from(">h", answer, at)
        found.append(answer[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return found


def _receive(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = connection.recv(count - len(got))
        if not more:
            raise ConnectionResetError("closed in the middle of an answer")
        got += more
    return got
