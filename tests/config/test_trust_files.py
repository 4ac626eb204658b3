"""``[trust]``: the audit log, the file of its heads and the configuration are three files."""

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
