"""Errors of usage: argparse's complaint with a hint at the command or option that was probably meant."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn

CONFIG_VARIABLE = "RECONCILER_CONFIG"
"""The environment variable with the configuration's path, for command lines without ``-c``."""

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
    """argparse's complaint, with the usage line of the parser that raised it."""

    def __init__(self, usage: str, prog: str, message: str) -> None:
        super().__init__(message)
        self.usage = usage
        self.prog = prog
        self.message = message


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises its complaints, so that a hint can be added."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(self.format_usage(), self.prog, message)


def usage_message(
    error: UsageError, arguments: Sequence[str], commands: Mapping[str, str], options: Collection[str]
) -> str:
    """Usage, complaint and hint; ``options`` are those of the command on the command line."""
    hint = _hint(error.message, arguments, commands, options)
    return f"{error.usage}{error.prog}: {error.message}" + (f"\n{hint}" if hint else "")


def _hint(message: str, arguments: Sequence[str], commands: Mapping[str, str], options: Collection[str]) -> str | None:
    config = next((each for each in arguments if each.endswith(".toml")), None)
    named = {"-c", "--config"} & {each.partition("=")[0] for each in arguments}
    if config is not None and not named and ("required" in message or "unrecognized" in message):
        return f"Give the configuration with -c: -c {config}"
    if "-c/--config" in message:
        return f"Give the configuration with -c FILE, or set {CONFIG_VARIABLE} in the environment."
    if found := re.search(r"invalid choice: '?([^' ]*)'? \(choose from (.*)\)", message):
        return _closest(found[1], [each.strip(" '") for each in found[2].split(",")], commands)
    if found := re.search(r"unrecognized arguments: (?:.* )?(--[\w-]+)", message):
        near = difflib.get_close_matches(found[1], sorted(options), 1)
        return f"Did you mean {near[0]}?" if near else None
    return None


def _closest(word: str, choices: Sequence[str], commands: Mapping[str, str]) -> str | None:
    is_command = set(choices) >= set(commands)
    meant = _SYNONYMS.get(word) if is_command else None
    near = [meant] if meant else difflib.get_close_matches(word, choices, 3, 0.7)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return "All commands: reconciler --help" if is_command else None
