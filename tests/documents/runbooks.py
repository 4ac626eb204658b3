"""A runbook's commands, taken from its page, and run as a person would: one after the other, in a terminal."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import LIMIT_S
from tests.world import ROOT, CommandResult, environment

PAGES = ROOT / "docs" / "how-to"


def commands(page: str, section: str) -> list[str]:
    """The ``reconciler`` commands of a page's section, in their order."""
    text = (PAGES / page).read_text(encoding="utf-8")
    found = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)[1]  # type: ignore[index]
    return [line.strip() for line in found.splitlines() if re.match(r" {4,}reconciler ", line)]


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in a terminal, in a folder, who answers every question with yes. Programs in its ``bin`` come first."""

    folder: Path

    def runs(self, command: str) -> CommandResult:
        words = [sys.executable, "-m", *shlex.split(command)]
        variables = environment(PATH=f"{self.folder / 'bin'}:{os.environ['PATH']}")
        keyboard, terminal = pty.openpty()
        try:
            os.write(keyboard, b"y\n")
            done = subprocess.run(
                words, stdin=terminal, capture_output=True, cwd=self.folder, env=variables, timeout=LIMIT_S, check=False
            )
        finally:
            os.close(keyboard)
            os.close(terminal)
        return CommandResult(done.returncode, done.stdout.decode(), done.stderr.decode())
