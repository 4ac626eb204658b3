"""``[trust]``: its files are different ones, and settings that would have no effect are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.config.file import read_config
from tests.config.configurations import LEAST

ONE_FILE = {
    'audit_log = "FOLDER/reconciler.toml"': "[trust] audit_log is the configuration itself",
    'audit_log = "FOLDER/link.toml"': "[trust] audit_log is the configuration itself",
    'audit_log = "FOLDER/a"\naudit_heads = "FOLDER/link.toml"': "[trust] audit_heads is the configuration itself",
    'audit_log = "FOLDER/a"\naudit_heads = "FOLDER/x/../a"': "[trust] audit_heads and audit_log are one file",
    'audit_log = "FOLDER/one"\naudit_heads = "FOLDER/other"': "[trust] audit_heads and audit_log are one file",
}


@pytest.mark.parametrize(("lines", "words"), ONE_FILE.items())
def test_the_log_its_heads_and_the_configuration_are_three_files(tmp_path: Path, lines: str, words: str) -> None:
    path = tmp_path / "reconciler.toml"
    (tmp_path / "link.toml").symlink_to(path)
    (tmp_path / "one").touch()
    (tmp_path / "other").hardlink_to(tmp_path / "one")
    path.write_text(f"{LEAST}\n[trust]\n{lines.replace('FOLDER', str(tmp_path))}\n")
    found = read_config(path)
    assert isinstance(found, list)
    assert [words in each.message for each in found] == [True], found


@pytest.mark.parametrize("count", [1, 2])
def test_signatures_that_nothing_requires_are_a_fault(tmp_path: Path, count: int) -> None:
    """An unsigned plan would be applied, and a person who wrote this does not expect it."""
    path = tmp_path / "reconciler.toml"
    lines = f'\n[trust]\ntrusted_keys = ["a.pem", "b.pem"]\nsignatures = {count}\n'
    path.write_text(LEAST + lines)
    found = read_config(path)
    assert isinstance(found, list)
    (fault,) = found
    assert f"[trust] signatures = {count}, and require_signature is not set" in fault.message
    assert "Add require_signature = true." in (fault.hint or "")
    for said in ("true", "false"):
        path.write_text(f"{LEAST}{lines}require_signature = {said}\n")
        assert not isinstance(read_config(path), list), said
