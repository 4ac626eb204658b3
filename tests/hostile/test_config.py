"""A configuration file, whatever it holds, is a configuration or a sentence with exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.config.file import MOST_BYTES, load_config
from reconciler.core.errors import ConfigError
from tests.hostile.parsers import ENVIRONMENT, FULL, PARSERS


@pytest.mark.parametrize(
    "data",
    [
        b"a = " + b"[" * 200_000,
        b"a = " + b"[" * 200_000 + b"]" * 200_000,
        b"a = " + b"{a = " * 200_000,
        b".".join([b"a"] * 200_000) + b" = 1",
        b"[" + b".".join([b'"a"'] * 100_000) + b"]",
        b"a = " + b"1" * 1_000_000,
        b"a = 1." + b"1" * 1_000_000,
        b"\x00" * 1_000,
        b"\xff\xfe" + FULL.encode("utf-16-le"),
        b"a = '" + b"${A" * 300_000 + b"'",
        b"a = '" + b"password= " * 100_000 + b"'",
        b"a = '" + b"x://u:p" * 100_000 + b"'",
        b'a = "' + b"${SECRET}" * 100_000 + b'"',
        b"#" * 10_000_000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_content_that_is_meant_to_exhaust_a_parser_is_read_or_refused(data: bytes, tmp_path: Path) -> None:
    PARSERS["configuration"].judge(tmp_path, data)


def test_a_file_that_is_far_too_large_is_not_read_to_its_end(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is larger than 4 MiB"):
        load_config(Path("/dev/zero"))
    path = tmp_path / "large.toml"
    path.write_text(
        FULL.replace("[clusters.a]", "#" * (MOST_BYTES - 2 * len(FULL)) + "\n[clusters.a]").replace(
            "json:$.meta.id", "key"
        )
    )
    assert load_config(path, ENVIRONMENT).jobs


def test_a_secret_file_that_has_no_end_is_not_read_to_it(tmp_path: Path) -> None:
    path = tmp_path / "reconciler.toml"
    path.write_text(FULL.replace("${PLACE}", "x").replace('"sqlite:///x/offsets.db"', '"file:/dev/zero"'))
    with pytest.raises(ConfigError, match="the secret file /dev/zero cannot be read: it is larger"):
        load_config(path, ENVIRONMENT)
