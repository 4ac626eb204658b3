"""``[trust]``: a signature is required only where a key is trusted."""

from __future__ import annotations

from pathlib import Path

from reconciler.config.file import read_config
from tests.config.configurations import LEAST


def test_a_required_signature_needs_a_trusted_key(tmp_path: Path) -> None:
    path = tmp_path / "reconciler.toml"
    path.write_text(f"{LEAST}\n[trust]\nrequire_signature = true\n")
    found = read_config(path)
    assert isinstance(found, list)
    (fault,) = found
    assert "[trust] require_signature is true, and no key is trusted." in fault.message
    path.write_text(f'{LEAST}\n[trust]\nrequire_signature = true\ntrusted_keys = ["a.pem"]\n')
    assert not isinstance(read_config(path), list)
