"""A configuration file, whatever it holds, is a configuration or a sentence with exit code 2."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st

from reconciler.config.file import MOST_BYTES, load_config
from reconciler.core.errors import ConfigError, ExitCode
from tests.config import configurations
from tests.fuzz import fuzz, sized, slips

FULL = f"""{configurations.FULL}
[watch]
every = "60s"
[metrics]
pushgateway = "http://me:${{SECRET}}@h:9091"
"""
ENVIRONMENT = {"SECRET": "correct-horse", "PLACE": "/srv"}
WORDS = [
    *('"', "'", "[", "]", "[[", "]]", "{", "}", "=", ".", ",", "\n", "#", '"""', "\\u0000", "\\", "\x00", "\ufeff"),
    *("${", "${SECRET}", "file:", "file:/\\u0000", "file:/dev/null", "://", "u:p@", "?password=", "python:os:system"),
    *("true", "nan", "-inf", "1e400", "9" * 30, "1" * 5000, "2026-01-31", "00:00:00", "0x", "jobs", "store", "policy"),
    *(
        "identity",
        "client",
        "topics",
        "names",
        "json:$",
        "$.a[0]",
        "header:",
        "5s",
        "9" * 17 + "d",
        "\u202e",
        "\U0010ffff",
    ),
]


def ends(data: bytes) -> None:
    """Load it: it gives a configuration or a ConfigError, anything else fails."""
    said, code = "", None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reconciler.toml"
        path.write_bytes(data)
        try:
            load_config(path, ENVIRONMENT)
        except ConfigError as error:
            said, code = str(error), error.exit_code
    if said:
        assert code == ExitCode.USAGE
        assert "correct-horse" not in said


@sized
def test_any_slip_in_a_good_file_is_read_or_refused(runs: int) -> None:
    def claim(words: list[tuple[int, int, str]]) -> None:
        text = FULL
        for place, left_out, word in words:
            text = text[:place] + word + text[place + left_out :]
        ends(text.encode("utf-8", "surrogatepass"))

    slip = st.tuples(st.integers(0, len(FULL)), st.integers(0, 20), st.sampled_from(WORDS))
    fuzz(runs, st.lists(slip, max_size=4), claim)


VALUES = st.recursive(
    st.sampled_from(["true", "0", "-1", str(2**63), "1.5", "nan", "2026-01-31", "''", "'x'", "'5s'", "'${SECRET}'"]),
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(inner, max_size=2).map(
            lambda items: "{" + ", ".join(f"k{n} = {i}" for n, i in enumerate(items)) + "}"
        )
    ),
    max_leaves=4,
)
LINES = [number for number, line in enumerate(FULL.splitlines()) if " = " in line]


@sized
def test_any_value_at_any_key_is_read_or_refused(runs: int) -> None:
    def claim(drawn: tuple[int, str]) -> None:
        number, value = drawn
        lines = FULL.splitlines()
        lines[number] = f"{lines[number].partition(' = ')[0]} = {value}"
        ends("\n".join(lines).encode())

    fuzz(runs, st.tuples(st.sampled_from(LINES), VALUES), claim)


@sized
def test_any_bytes_are_a_configuration_or_are_refused_with_a_sentence(runs: int) -> None:
    words = st.lists(st.sampled_from(WORDS), max_size=40).map(lambda found: " ".join(found).encode())
    texts = st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
    fuzz(runs, slips([FULL.encode()], most=5) | words | texts, ends)


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
def test_content_that_is_meant_to_exhaust_a_parser_is_read_or_refused(data: bytes) -> None:
    ends(data)


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
