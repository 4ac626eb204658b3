"""Kafka client errors as this product's: whose move it is, and what to do next."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaError, KafkaException

from reconciler.core.errors import Changed, ConfigError, ReconcilerError, Refused, Unreachable

log = logging.getLogger(__name__)

AUTHENTICATION = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})
NOT_AUTHORIZED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
TOPIC_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION})
BAD_SETTINGS = frozenset({KafkaError._INVALID_ARG, KafkaError._UNKNOWN_PROTOCOL})


def explain(
    error: Exception, doing: str, who: str = "Kafka cluster", reason: KafkaError | None = None
) -> ReconcilerError:
    """The product's error for a client's. ``reason`` is what the client said last about its connections."""
    found = error.args[0] if isinstance(error, KafkaException) and error.args else None
    if not isinstance(found, KafkaError) or found.code() in BAD_SETTINGS:
        text = found.str() if isinstance(found, KafkaError) else str(error)
        return ConfigError(f"The Kafka client refused its settings: {text}.", hint="Correct [destination.client].")
    code = found.code()
    said = f" ({reason.str()})" if reason is not None else ""
    if code in AUTHENTICATION or (reason is not None and reason.code() in AUTHENTICATION):
        return Refused(
            f"The {who} refused the login while {doing}{said or ': ' + found.str()}.",
            hint="Check the sasl.* and ssl.* settings under [destination.client].",
        )
    if code in NOT_AUTHORIZED:
        return Refused(
            f"The {who} does not allow {doing}: {found.str()}.",
            hint="Grant DESCRIBE and READ on the topics to this user; nothing else is needed to check.",
        )
    if code in TOPIC_GONE:
        gone = Changed(
            f"A topic or partition disappeared from the {who} while {doing}: {found.str()}.",
            hint="See whether it is being deleted or recreated, then run this again.",
        )
        gone.retryable = True  # a broker that has just come back knows no partition for a moment
        return gone
    return Unreachable(
        f"The {who} did not answer while {doing}: {found.str()}{said}.",
        hint="See that its brokers are up and reachable from here, then run this again.",
    )


class ErrorLog:
    """Remembers what the client last reported about its connections; give it as ``error_cb``."""

    def __init__(self, who: str, bootstrap: str) -> None:
        self._who = who
        self._bootstrap = bootstrap
        self._last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        # "All brokers down" follows every refused connection and says less than the refusal did.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last is None:
            self._last = error
        log.debug("kafka client: %s", error)

    def explain(self, error: KafkaException, doing: str) -> ReconcilerError:
        """``explain`` with what is known about this cluster's connections."""
        return explain(error, doing, f"{self._who} cluster ({self._bootstrap})", self._last)

    def unreachable(self, what: str) -> Unreachable:
        """Nothing came, and no call failed."""
        said = f" (the client last said: {self._last.str()})" if self._last is not None else ""
        return Unreachable(
            f"{what} from the {self._who} cluster ({self._bootstrap}){said}.",
            hint="See that its brokers are up and reachable from here, then run this again.",
        )
