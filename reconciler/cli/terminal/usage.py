"""A command line that means nothing: what was probably meant."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

CONFIG_VARIABLE = "RECONCILER_CONFIG"
"""Names the configuration where no ``-c`` does."""

_SYNONYMS = {
    "validate": "config check",
    "verify": "config check",
    "doctor": "config check",
    "lint": "config check",
    "setup": "init",
    "status": "check",
    "dry-run": "check",
    "undo": "rollback",
    "revert": "rollback",
    "export": "anchors export",
    "import": "anchors import",
    "monitor": "watch",
    "clone": "checkpoint clone",
    "completions": "completion",
}


class UsageError(Exception):
    """argparse's complaint; ``usage`` is that of the parser which complained."""

    def __init__(self, usage: str, prog: str, message: str) -> None:
        super().__init__(message)
        self.usage = usage
        self.prog = prog
        self.message = message


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are raised, for a hint to be added where they are told."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(self.format_usage(), self.prog, message)


def told(error: UsageError, arguments: Sequence[str], commands: Mapping[str, str], options: Collection[str]) -> str:
    """Usage, complaint and hint; ``options`` are those of the command that was asked for."""
    hint = _hint(error.message, arguments, commands, options)
    return f"{error.usage}{error.prog}: {error.message}" + (f"\n{hint}" if hint else "")


def _hint(message: str, arguments: Sequence[str], commands: Mapping[str, str], options: Collection[str]) -> str | None:
    config = next((each for each in arguments if each.endswith(".toml")), None)
    named = {"-c", "--config"} & {each.partition("=")[0] for each in arguments}
    if config is not None and not named and ("required" in message or "unrecognized" in message):
        return f"A configuration is named with -c: -c {config}"
    if "-c/--config" in message:
        return f"Name the configuration with -c FILE, or in the environment as {CONFIG_VARIABLE}."
    if found := re.search(r"invalid choice: '?([^' ]*)'? \(choose from (.*)\)", message):
        return _near(found[1], [each.strip(" '") for each in found[2].split(",")], commands)
    if found := re.search(r"unrecognized arguments: (?:.* )?(--[\w-]+)", message):
        near = difflib.get_close_matches(found[1], sorted(options), 1)
        return f"Did you mean {near[0]}?" if near else None
    return None


def _near(word: str, choices: Sequence[str], commands: Mapping[str, str]) -> str | None:
    is_command = set(choices) >= set(commands)
    meant = _SYNONYMS.get(word) if is_command else None
    near = [meant] if meant else difflib.get_close_matches(word, choices, 3, 0.7)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return "All commands: reconciler --help" if is_command else None
