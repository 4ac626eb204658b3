"""The Kafka client's errors as the product's: who must act, and what to do next. Only this module decides that.

The client library reports a failed call by a code, and errors of its connections (a refused login, a certificate)
through a callback; ``ClusterErrors`` keeps the latter, and joins the two.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor

from confluent_kafka import KafkaError

from reconciler.core.errors import Changed, ConfigError, ReconcilerError, Refused, Unreachable
from reconciler.kafka.tokens import source_of
from reconciler.near import near_names
from reconciler.waits import none_resolves, waited_s

SECTION = "[clusters.NAME.client]"

LOGIN = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})
ON_TOPIC = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED})
ON_GROUP = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
FORBIDDEN = ON_TOPIC | ON_GROUP | {KafkaError.CLUSTER_AUTHORIZATION_FAILED}
TOPIC_GONE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        103,  # INCONSISTENT_TOPIC_ID, which the client names from 2.15 on
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
COORDINATOR_MOVING = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
"""A repeated call will soon be answered: a broker has just started, a transaction is ending. Nothing was read; of a
commit that was sent, a part may have been done."""
STALE_EPOCH = frozenset({KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH})
"""A request named another leader epoch than the broker's. An admin client (librdkafka 2.16) asks with the epoch that it
knows for as long as it keeps its metadata: 60 s and more, measured after a broker had stood still."""
LEADER_MOVING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.FETCH_SESSION_ID_NOT_FOUND,
        KafkaError.INVALID_FETCH_SESSION_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError._NOENT,  # "No leaders found", of all partitions asked for
    }
)
DAMAGED = frozenset({KafkaError._BAD_MSG, KafkaError.INVALID_MSG})
UNANSWERED = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._DESTROY,
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
    }
)
"""No answer: a write that was sent may or may not have happened."""

_CERTIFICATE_ALERT = re.compile(r"alert (certificate|bad certificate|unknown ca|handshake failure|access denied)")
_NO_KAFKA = "Invalid response size"
_IN_HANDSHAKE = "in state SSL_HANDSHAKE"
"""A connection closed in this state was closed by a port without TLS: a broker with TLS sends an alert instead."""
_MOST_ADDRESSES = 3
_CONNECT_S = 2.0
_NO_PROVIDER = (
    "Check that the provider at sasl.oauthbearer.token.endpoint.url is up, and that it knows "
    f"sasl.oauthbearer.client.id and its secret, under {SECTION}."
)
_EXPIRED = "unexpired token"
_OLD_TOKEN = "Compare this machine's clock with the provider's, or have the provider give out a new token."
_WRONG_TOKEN = (
    "Compare the token's issuer, audience and scope with what the brokers expect (sasl.oauthbearer.scope under "
    f"{SECTION} asks the provider for them)."
)
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token"
_NO_KERBEROS = "No provider for SASL mechanism GSSAPI"
_PROPERTIES = (
    *("security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "client.id"),
    *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location"),
    *("ssl.key.pem", "ssl.key.password", "ssl.keystore.location", "ssl.keystore.password"),
    *("ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification", "socket.timeout.ms"),
)
"""The most properties to suggest for a misspelt one."""
_OWN_CERTIFICATE = ("ssl.keystore.location", "ssl.certificate.location", "ssl.certificate.pem")
_FILES = {
    "ssl.ca.location": "Check that the file holds certificates in PEM.",
    "ssl.certificate.location": "Check that the file holds certificates in PEM.",
    "ssl.key.location": "Check that the file holds a key in PEM, and that ssl.key.password opens it.",
    "ssl.keystore.location": "Check that the file is in PKCS#12, and that ssl.keystore.password opens it.",
}
"""Properties that name files, and the hint where a file can be read but not used."""


@dataclass(frozen=True, slots=True)
class Needs:
    """The permissions that a call needs on its topics and on its group, like ``Read on topic a.events``."""

    topic: str = ""
    group: str = ""


@dataclass(slots=True)
class ClusterErrors:
    """The errors of one cluster's clients, as the product's: ``name`` and ``user`` are for sentences.

    ``client`` are the settings, and a call times out after ``timeout_s``. It keeps what the clients' connections have
    reported since ``clear``: pass it as ``error_cb``.
    """

    name: str
    user: str
    timeout_s: float
    client: Mapping[str, str]
    login: KafkaError | None = None
    last: KafkaError | None = None
    all_down: bool = False
    """No broker that the client knows of can be used."""

    def __call__(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # follows every broken connection, and says less
            self.all_down = True
        elif error.code() in LOGIN:
            self.login = self.last = error
        elif error.code() < 0:  # a broker's error answers a request, and is not about the connection
            self.last = error

    def clear(self) -> None:
        self.login = self.last = None
        self.all_down = False

    def explain(self, error: KafkaError, doing: str, needs: Needs) -> ReconcilerError:
        """The product's error for the client's. ``doing`` is the failed action, an infinitive."""
        code = error.code()
        if self.login is not None and code in UNANSWERED and _NO_TOKEN in self.login.str():
            return self._no_token(self.login, doing)
        if code in LOGIN or (self.login is not None and code in UNANSWERED):
            return self._login_refused(self.login or error, doing)
        if code in FORBIDDEN:
            return self._forbidden(code, doing, needs)
        if code in TOPIC_GONE:
            gone = Changed(
                f"Could not {doing}: {self.name} no longer knows the topic or partition ({plain_text(error)}).",
                hint="Check whether it is being deleted or recreated, or the Describe permission on it was withdrawn,  "
                "then run this again.",
            )
            gone.retryable = True  # a broker that has just come back knows no partition for a moment
            return gone
        if code in COORDINATOR_MOVING or code in LEADER_MOVING:
            waited = round(waited_s())  # a broker says so at once: the time of all tries counts
            after = f" after {waited:,} s" if waited else ""
            return Unreachable(
                f"Could not {doing}: {self.name} was not ready for it{after} ({plain_text(error)}).",
                hint="Run this again in a moment; if that does not help, check the brokers' health.",
            )
        if code in DAMAGED:
            return Refused(
                f"Could not {doing}: {self.name} delivered records that are damaged ({plain_text(error)}).",
                hint="Check the disk and the log of the broker that leads the partition; have a replica that is "
                "whole lead it, then run this again.",
            )
        if code > 0 and code not in UNANSWERED:
            return Refused(
                f"Could not {doing}: {self.name} refused ({plain_text(error)}).",
                hint="Correct what it names, then run this again.",
            )
        return self.no_answer(f"Could not {doing}", plain_text(error))

    def no_answer(self, what: str, why: str = "") -> Unreachable:
        """The error for a call without an answer in time. ``what`` begins the sentence.

        The seconds are those of all calls that were repeated for it, not of the last one alone.
        """
        text = plain_text(self.last) if self.last is not None else why
        silent_s = max(self.timeout_s, floor(waited_s()))
        return Unreachable(
            f"{what}: {self.name} gave no answer in {silent_s:,g} s{f' ({text})' if text else ''}.",
            hint="Check that its brokers are up and reachable from here, then run this again.",
        )

    def refusal(self, doing: str) -> Refused | None:
        """The error that no wait can mend: a certificate or the login is refused, or no server's name resolves."""
        login = None if self.login is None else self._login_refused(self.login, doing)
        return self.tls_refused(doing) or login or self._unresolved(doing)

    def _login_refused(self, error: KafkaError, doing: str) -> Refused:
        why = plain_text(error)
        hint = f"Correct sasl.username, sasl.password or sasl.mechanism under {SECTION}, or have the user made there."
        if (source := source_of(self.client)) is not None:
            hint = f"The token comes from {source}: check that its user may log in there."
        elif "OAUTHBEARER" in (self.client.get("sasl.mechanism"), self.client.get("sasl.mechanisms")):
            hint = _WRONG_TOKEN
        if why.endswith("supported mechanisms:"):  # none
            hint = f"That port takes no logins: use another, or set security.protocol without SASL_ under {SECTION}."
        return Refused(f"Could not {doing}: {self.name} refused the login of {self.user} ({why}).", hint=hint)

    def tls_refused(self, doing: str) -> Refused | None:
        """The error for a certificate that one side does not accept; None if the client reported none.

        The client has one text for an unknown authority, an expired certificate, and a certificate of another name.
        """
        text = plain_text(self.last) if self.last is not None else ""
        if "certificate verify failed" in text:
            what = "shows a certificate that is not trusted here, is out of date, or is not made out to its address"
            hint = (
                f"Set ssl.ca.location under {SECTION} to the certificate of the authority that signed the brokers', "
                "and use the name that their certificate holds in bootstrap_servers."
            )
        elif not _CERTIFICATE_ALERT.search(text):
            return None
        elif any(name in self.client for name in _OWN_CERTIFICATE):
            what = f"does not accept the client's certificate ({text})"
            hint = "Have it signed by an authority that the brokers trust, or use another."
        else:
            what = "asks for a client certificate, and none is configured"
            hint = f"Set ssl.keystore.location, or ssl.certificate.location and ssl.key.location, under {SECTION}."
        return Refused(f"Could not {doing}: {self.name} {what}.", hint=hint)

    def _unresolved(self, doing: str) -> Refused | None:
        """The error for servers of which none has a name that resolves; None if one has, or none is reported."""
        if self.last is None or self.last.code() != KafkaError._RESOLVE:
            return None
        if not none_resolves(addresses(self.client.get("bootstrap.servers", ""))):
            return None
        return Refused(
            f"Could not {doing}: {self.name} has no address ({plain_text(self.last)}).",
            hint="Correct bootstrap_servers, or this machine's name resolution (DNS).",
        )

    def other_protocol(self) -> str | None:
        """A hint that a broker may speak another security.protocol than the client; None without a sign of that.

        A broker closes such a connection without an answer, but so does a proxy without a broker: it is only a hint.
        """
        protocol = self.client.get("security.protocol", "PLAINTEXT").upper()
        text = self.last.str() if self.last is not None else ""
        if _NO_KAFKA in text:
            return (
                f"The server on that port does not speak Kafka over {protocol}: correct bootstrap_servers, or "
                f"security.protocol under {SECTION}."
            )
        if text and "Disconnected" not in text:
            return None
        if _IN_HANDSHAKE in text:
            return (
                f"That port may speak without TLS, and security.protocol is {protocol}: take the port that speaks TLS, "
                f"or set security.protocol under {SECTION} to one without it (not encrypted)."
            )
        places = addresses(self.client.get("bootstrap.servers", ""))[:_MOST_ADDRESSES]
        if not any(_hangs_up(host, port) for host, port in places):
            return None
        return (
            f"It accepts connections and closes them, as a port does that speaks another protocol than {protocol}: set "
            f"security.protocol under {SECTION} to SSL, SASL_SSL, SASL_PLAINTEXT or PLAINTEXT, as the port has it."
        )

    def _no_token(self, error: KafkaError, doing: str) -> Unreachable:
        why = plain_text(error).partition(_NO_TOKEN)[2].lstrip(": ")
        source = source_of(self.client)
        hint = f"The token comes from {source}: repair that." if source is not None else _NO_PROVIDER
        if _EXPIRED in why:
            hint = _OLD_TOKEN
        return Unreachable(
            f"Could not {doing}: there was no token for {self.name} in {self.timeout_s:g} s ({why}).", hint=hint
        )

    def _forbidden(self, code: int, doing: str, needs: Needs) -> Refused:
        wanted = needs.topic if code in ON_TOPIC else needs.group if code in ON_GROUP else ""
        lack = f"needs {wanted}" if wanted else f"lacks a permission ({plain_text(KafkaError(code))})"
        return Refused(
            f"Could not {doing}: {self.name} does not allow it, {self.user} {lack}.",
            hint="Ask its administrator for that permission.",
        )


def addresses(servers: str) -> list[tuple[str, int]]:
    """Hosts and ports of ``bootstrap.servers``, each perhaps as ``protocol://host:port`` or ``[host]:port``."""
    found = []
    for server in servers.split(","):
        place = server.strip().rpartition("://")[2]
        host, colon, port = place.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = place, "9092"
        if host and port.isdecimal():
            found.append((host.strip("[]"), int(port)))
    return found


def _hangs_up(host: str, port: int) -> bool:
    """True if a server closes a connection that begins with unknown bytes. A server that hangs stays silent."""
    try:
        with socket.create_connection((host, port), _CONNECT_S) as connection:
            connection.sendall(bytes(8))
            connection.recv(1)
    except ConnectionResetError:
        return True
    except OSError:  # no listener, or no answer in time
        return False
    return True


def plain_text(error: KafkaError) -> str:
    """The client's text without its decoration: the thread, the time, and who reported it."""
    text = re.sub(r"^\S+/(?:bootstrap|\d+): ", "", error.str().strip().rstrip("."))
    text = re.sub(r" \(after \d+ms in state \w+(, .*)?\)$", "", text)
    return re.sub(r"(^|: )(Broker|Local): ", r"\1", text).strip()


# ---------------------------------------------------------------- settings


def bad_settings(error: Exception, client: Mapping[str, str]) -> ConfigError:
    """The error for settings that no client can be made with: an unknown property, an unusable value or file."""
    text = _settings_text(error)
    name = next((name for name in _FILES if name in text), None)
    if name is not None and (unreadable := _file(name, client)) is not None:
        return unreadable
    hint = _FILES[name] if name is not None else f"Correct {SECTION}."
    if text.startswith(_NO_KERBEROS):
        return ConfigError(
            "sasl.mechanism is GSSAPI (Kerberos), which this build of the Kafka client does not have.",
            hint=f"Set another sasl.mechanism under {SECTION}, or build the client with Kerberos: "
            "pip install --no-binary confluent-kafka confluent-kafka, with a librdkafka that was built with libsasl2.",
        )
    return ConfigError(f"The Kafka client does not take its settings: {text}.", hint=hint)


def unknown_property(error: Exception) -> str:
    """The property that librdkafka does not know; empty if the error is another one."""
    found = re.match(r'No such configuration property: "([^"]+)"', _settings_text(error))
    return found[1] if found else ""


def unknown_properties(names: Sequence[str]) -> ConfigError:
    """The error for these properties, with what one that is misspelt may have meant."""
    near = [each for name in names for each in near_names(name, _PROPERTIES, 1, alike=0.8)]
    hint = f"Did you mean {' and '.join(near)}? " if near else ""
    listed = ", ".join(f'"{name}"' for name in names)
    kind = "property" if len(names) == 1 else "properties"
    problem = f"The Kafka client does not take its settings: No such configuration {kind}: {listed}."
    return ConfigError(problem, hint=f"{hint}Correct {SECTION}.")


def _settings_text(error: Exception) -> str:
    cause = error.args[0] if error.args else error
    text = cause.str() if isinstance(cause, KafkaError) else str(cause)
    return re.sub(r"^Failed to create \w+( client)?: ", "", text).rstrip(".")


def _file(name: str, client: Mapping[str, str]) -> ConfigError | None:
    """Why the file that a property names cannot be read; None if it can."""
    path = client.get(name, "")
    if "-----BEGIN" in path or "\n" in path:  # never repeated: it may be a private key
        return ConfigError(
            f"{name} under {SECTION} holds a file's content, and takes its path.",
            hint=f'Leave out "file:" in front of the path, or use {name.replace(".location", ".pem")} for the content.',
        )
    try:
        with open(path, "rb"):
            return None
    except IsADirectoryError:
        return None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return ConfigError(
            f"{name} under {SECTION} names {path}, which cannot be read: {why}.",
            hint="Correct the path, or let this user read the file.",
        )
