"""Tokens that this process makes: what librdkafka gets, and what is refused before it is asked."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest

from reconciler.config.secrets import KNOWN
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.kafka.tokens import with_token
from tests.kafka.security import tokens

SOON = time.time() + 900
MSK = {"bootstrap.servers": "b-1.clicks.x1.c2.kafka.eu-west-1.amazonaws.com:9098", "sasl.mechanism": "AWS_MSK_IAM"}


def gives(made: object, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(tokens, "fetched", lambda: made)
    return {"oauth": "python:tests.kafka.security.tokens:fetched"}


def token_of(client: dict[str, str]) -> Any:
    return with_token(client)["oauth_cb"]("")


def test_other_settings_stay_as_they_are() -> None:
    client = {"sasl.mechanism": "PLAIN", "sasl.username": "me"}
    assert with_token(client) == client


def test_msk_gets_a_request_signed_for_its_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    made = with_token(MSK)
    assert (made["security.protocol"], made["sasl.mechanism"]) == ("SASL_SSL", "OAUTHBEARER")
    token, end = made["oauth_cb"]("")
    signed = base64.urlsafe_b64decode(token + "==").decode()
    assert signed.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect")
    assert "planted" not in signed
    assert time.time() < end <= time.time() + 901
    assert token not in KNOWN.redacted(f"refused {token}")


def test_msk_behind_a_name_of_ones_own_needs_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(ConfigError, match="does not name its AWS region"):
        with_token({**MSK, "bootstrap.servers": "kafka.example:9098"})
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert "oauth_cb" in with_token({**MSK, "bootstrap.servers": "kafka.example:9098"})


def test_a_function_gives_the_token_and_its_end_and_perhaps_extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ("secret-token", SOON, "me", {"pool": "one"})
    assert token_of(gives(made, monkeypatch)) == made


@pytest.mark.parametrize("made", ["text", ("token",), (b"token", SOON), ("token", SOON * 1000), ("token", 1.0)])
def test_what_is_no_token_with_an_end_in_the_future_is_refused(made: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka would take milliseconds for seconds, and never ask again."""
    with pytest.raises((TypeError, ValueError)):
        token_of(gives(made, monkeypatch))


def test_the_first_token_is_made_before_a_client_waits_for_it_and_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source = with_token(gives(("one", SOON), monkeypatch))["oauth_cb"]
    source.fetch("the cluster")
    assert source("") == ("one", SOON)
    monkeypatch.setattr(tokens, "fetched", lambda: 1 / 0)
    broken = with_token({"oauth": "python:tests.kafka.security.tokens:fetched"})["oauth_cb"]
    with pytest.raises(Unreachable, match="There is no token for the cluster"):
        broken.fetch("the cluster")


def test_a_function_beside_another_mechanism_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="oauth gives a token, and"):
        with_token({**gives(("token", SOON), monkeypatch), "sasl.mechanism": "PLAIN"})
