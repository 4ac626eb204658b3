"""Logins for Spark's sources may come from variables and files instead of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.cli.arguments import pairs
from reconciler.config.secrets import KNOWN
from reconciler.core.errors import ConfigError

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="planted-secret";'


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    KNOWN.clear()
    yield
    KNOWN.clear()


@pytest.mark.parametrize("option", ["option", "kafka_option", "source_option"])
def test_a_login_is_read_from_a_variable_or_a_file_and_redacted_in_the_log(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "login").write_text(LOGIN)
    monkeypatch.setenv("LOGIN", LOGIN)
    for value in ("${LOGIN}", f"file:{tmp_path / 'login'}"):
        assert pairs(option, [f"kafka.sasl.jaas.config={value}"]) == {"kafka.sasl.jaas.config": LOGIN}
        assert "planted-secret" not in KNOWN.redacted(f"{LOGIN} and planted-secret alone")
        KNOWN.clear()


def test_settings_of_the_spark_session_are_passed_unchanged() -> None:
    assert pairs("conf", ["spark.a=${spark.b}", "spark.c=file:/x"]) == {"spark.a": "${spark.b}", "spark.c": "file:/x"}


def test_a_wrong_pair_is_not_repeated_in_the_error() -> None:
    with pytest.raises(ConfigError) as caught:
        pairs("kafka_option", ["planted-secret"])
    assert str(caught.value) == "--kafka-option … is not NAME=VALUE."
