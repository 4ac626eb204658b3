"""Jobs that have failed over in memory, for commands that are run thousands of times, each with the same files."""

from __future__ import annotations

import gc
import os
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from reconciler.config.secrets import KNOWN
from reconciler.core.errors import ExitCode
from tests.golden.corpus import Estate
from tests.golden.keys import write_key
from tests.golden.world import Result, World

CONFIG = ("-c", "reconciler.toml")
SETTINGS = '[state]\nstore = "files:state"\n[trust]\ntrusted_keys = ["ada.pub.pem"]\n'


class Again:
    """A folder with a plan that was applied, its snapshot and signature, exported anchors, and a job that is moving."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World(folder, monkeypatch)
        Estate(self.world).with_section(SETTINGS)
        write_key(folder, "ada")
        for words in (
            ("init", *CONFIG),
            ("plan", *CONFIG, "--job", "clicks", "-o", "p.json"),
            ("sign", "p.json", "--key", "ada.pem", "--yes"),
            ("apply", "p.json", *CONFIG, "--yes"),
            ("anchors", "export", *CONFIG, "anchors.jsonl"),
            ("move", "--to", "b", *CONFIG, "--job", "ready", "--yes"),
        ):
            ended = self.world.run(*words)
            assert ended.code == 0, ended.err
        monkeypatch.setattr(os, "execve", _started)
        self._files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def run(self, words: Sequence[str], files: Mapping[str, bytes], stdin: str = "") -> Result:
        """A command in this folder, with other ``files``. It ends by a sentence, whatever they hold."""
        for name, content in files.items():
            self.world.file(name, "").write_bytes(content)
        try:
            ended = self.world.run(*words, stdin=stdin)
        finally:
            self._restore()
            KNOWN.clear()  # else the redactor would grow with every configuration
            gc.set_threshold(700)  # a command's own is for seconds: Kafka's clients would pile up
        text = ended.out + ended.err
        assert ended.code in set(ExitCode) - {ExitCode.BUG}, text
        assert ended.code == ExitCode.OK or text.strip(), "refused without a word"
        assert "Traceback" not in text or "--debug" in words
        assert not [c for c in text if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]
        return ended

    def _restore(self) -> None:
        there = [path for path in self.world.folder.rglob("*") if path.is_file() or path.is_symlink()]
        for path in there:
            if path not in self._files:
                path.unlink()
        for path, content in self._files.items():
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)


def _started(*_: object) -> None:
    raise SystemExit(0)
