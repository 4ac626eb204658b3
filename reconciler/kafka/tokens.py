"""Logins by a token that this process makes: AWS IAM, or a function of the user's own.

librdkafka knows OAUTHBEARER (RFC 7628, KIP-255), and asks for each token by a callback. Amazon MSK's IAM login is that
mechanism with a signed request as the token, which AWS's signer makes (aws-msk-iam-sasl-signer-python, the extra
``msk``); Java's clients call it ``AWS_MSK_IAM``. Both stay text in a cluster's settings, so that they can be sent to
another process: the callback is made where a client is.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from reconciler.config.identity import load_function
from reconciler.config.secrets import KNOWN
from reconciler.core.errors import ConfigError, Unreachable

OAUTH = "oauth"
"""The one key of a ``client`` table that is not librdkafka's: ``python:module:function``."""
IAM = "AWS_MSK_IAM"
_MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")
_BEARER = "OAUTHBEARER"
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.(?:vpce\.)?amazonaws\.com")
_NOT_SECONDS = 1e11
"""A later end is in ms: as seconds it is in the year 5138."""

Maker = Callable[[], object]
"""Makes a token: its text, its end in epoch seconds, and perhaps a principal and SASL extensions (a dict)."""


def with_token(client: Mapping[str, Any]) -> dict[str, Any]:
    """Client settings as librdkafka takes them, with a callback for the token where they ask for one.

    Raises ConfigError for a login that cannot be used: no signer, no region, no such function.
    """
    named = [str(client[name]) for name in _MECHANISMS if name in client]
    if IAM in named:
        make = _by_iam(str(client.get("bootstrap.servers", "")))
    elif OAUTH in client:
        if named not in ([], [_BEARER]):
            raise ConfigError(
                f"oauth gives a token, and sasl.mechanism is {named[0]}.", hint="Leave one of the two out."
            )
        make = load_function(OAUTH, str(client[OAUTH]))
    else:
        return dict(client)
    kept = {name: value for name, value in client.items() if name not in (OAUTH, *_MECHANISMS)}
    return {
        "security.protocol": "SASL_SSL",
        **kept,
        "sasl.mechanism": _BEARER,
        "oauth_cb": TokenSource(make, str(source_of(client))),
    }


def source_of(client: Mapping[str, Any]) -> str | None:
    """Where the settings' tokens come from, for sentences; None if it is an identity provider, or they have none."""
    if IAM in (client.get(name) for name in _MECHANISMS):
        return "the AWS credentials of this process"
    return str(client[OAUTH]) if OAUTH in client else None


class TokenSource:
    """librdkafka's callback for a token. The client reports an exception of it as its reason."""

    def __init__(self, make: Maker, source: str) -> None:
        self._make, self._source = make, source
        self._first: tuple[Any, ...] | None = None

    def fetch(self, cluster: str) -> None:
        """Make the first token. A client without one only says, after ten seconds, that it has none.

        Raises Unreachable with what the maker raised.
        """
        try:
            self._first = _made_by(self._make)
        except Exception as error:
            raise Unreachable(
                f"There is no token for {cluster}: {self._source} failed with {type(error).__name__}: {error}.",
                hint="Repair that, then run this again.",
            ) from error

    def __call__(self, _: str) -> tuple[Any, ...]:
        first, self._first = self._first, None
        return _made_by(self._make) if first is None else first


def _made_by(make: Maker) -> tuple[Any, ...]:
    made = make()
    if not isinstance(made, tuple) or len(made) < 2 or not isinstance(made[0], str):
        raise TypeError("the function must return the token (text), and its end (epoch seconds)")
    token, end = made[0], float(made[1])
    if end > _NOT_SECONDS or end <= time.time():
        raise ValueError(f"the token's end must be in epoch seconds, and later than now: {made[1]!r}")
    KNOWN.add(token, "the token")
    return (token, end, *made[2:])


def _by_iam(servers: str) -> Maker:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # the extra ``msk``
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"sasl.mechanism is {IAM}, and AWS's signer is not installed.",
            hint='Install it: pip install "failover-offset-reconciler[msk]"',
        ) from error
    found = _REGION.search(servers)
    region = found[1] if found else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigError(
            f"sasl.mechanism is {IAM}, and {servers} does not name its AWS region.", hint="Set AWS_REGION."
        )

    def signed() -> tuple[str, float]:
        token, end_ms = MSKAuthTokenProvider.generate_auth_token(region)
        return token, end_ms / 1000

    return signed
