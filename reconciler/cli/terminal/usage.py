"""Errors of usage: argparse's complaint with a hint at the command or option that was probably meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from reconciler.core.visible import visible
from reconciler.near import MOST_NAMES, near_names

CONFIG_VARIABLE = "RECONCILER_CONFIG"
"""The environment variable with the configuration's path, for command lines without ``-c``."""

CONFIG_HERE = Path("reconciler.toml")
"""The configuration of a command line that names none."""

_SYNONYMS = {
    "validate": "config check",
    "verify": "config check",
    "doctor": "config check",
    "lint": "config check",
    "setup": "init",
    "status": "failover status",
    "dry-run": "check",
    "undo": "rollback",
    "revert": "rollback",
    "export": "anchors export",
    "import": "anchors import",
    "monitor": "watch",
    "clone": "checkpoint clone",
    "completions": "completion",
}
_OPTION_SYNONYMS = dict.fromkeys(("--destination", "--broker", "--brokers", "--servers"), "--bootstrap-servers")
_NEVER_EMPTY = ("PATH", "NEW_PATH", "FOLDER", "URL", "HASH", "ID")
"""Metavars of texts that are paths, or that name one thing."""
_NO_NUMBER = re.compile(r"(?P<option>argument .*): invalid (?P<kind>int|float) value: (?P<value>'.*')", re.DOTALL)


def found_config(options: argparse.Namespace) -> Path | None:
    """The configuration that was found here; None if it was named, or there is none."""
    config = getattr(options, "config", None)
    return CONFIG_HERE if config is CONFIG_HERE else None


class UsageError(Exception):
    """argparse's complaint, with the usage line of the parser that raised it."""

    def __init__(self, usage: str, prog: str, message: str) -> None:
        super().__init__(message)
        self.usage = usage
        self.prog = prog
        self.message = visible(message)


class _GivenOnce(argparse._StoreAction):
    """An option with one value: a second one would silently replace the first. The value may be a secret."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        if option is not None and isinstance(parser, Parser):
            first = parser.given.setdefault(self.dest, values)
            if first is not values and first != values:  # a nan is not equal to itself
                parser.error(f"{option} is given twice, with different values: this command takes one")
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises its complaints, so that a hint can be added.

    Options are written in full: the next version may have another option that begins like one. An option with one value
    is given once.
    """

    def __init__(self, **words: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **words})
        self.given: dict[str, Any] = {}
        """The values of the command line so far, by the name of the option's attribute."""
        self.register("action", None, _GivenOnce)
        self.register("action", "store", _GivenOnce)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.given.clear()
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        """As argparse's, without the values of options that it does not know: they may be secrets."""
        known: argparse.Namespace
        known, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(_without_values(unknown))}")
        return known

    def error(self, message: str) -> NoReturn:
        if found := _NO_NUMBER.fullmatch(message):
            kind = "a whole number" if found["kind"] == "int" else "a number"
            message = f"{found['option']} is not {kind}: {found['value']}"
        raise UsageError(self.format_usage(), self.prog, message)

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse's method, which ignores errors: help that a full disk did not take was not shown."""
        if message and file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """As argparse's method, after writing out what was printed: an error then shows that it was not written."""
        sys.stdout.flush()
        super().exit(status, message)

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """As argparse's; an empty path is refused: it would be the working directory. So are other empty texts that
        would pass for a wrong one, or for an option that was left out."""
        if not arg_string and (action.type is Path or action.metavar in _NEVER_EMPTY):
            raise argparse.ArgumentError(action, "is empty. If it comes from a variable, that is not set")
        return super()._get_value(action, arg_string)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """As argparse's; Python 3.11 makes an empty list of ``--option=--``."""
        if action.option_strings and arg_strings == ["--"]:
            self.error(f"argument {'/'.join(action.option_strings)}: expected one argument")
        return super()._get_values(action, arg_strings)


def _without_values(words: Sequence[str]) -> Iterator[str]:
    from reconciler.config.addresses import without_secrets

    is_value = False
    for word in words:
        name, equals, _ = word.partition("=")
        if word.startswith("-"):
            yield f"{name}=…" if equals else name
        else:
            yield "…" if is_value else without_secrets(word)
        is_value = word.startswith("-") and not equals


def usage_message(
    error: UsageError, arguments: Sequence[str], commands: Mapping[str, str], options: Collection[str]
) -> str:
    """Usage, complaint and hint; ``options`` are those of the command on the command line."""
    hint = _hint(error.message, error.prog, arguments, commands, options)
    return f"{error.usage}{error.prog}: {error.message}" + (f"\n{hint}" if hint else "")


def _hint(
    message: str, prog: str, arguments: Sequence[str], commands: Mapping[str, str], options: Collection[str]
) -> str | None:
    written = {after for option, after in pairwise(arguments) if option in ("-o", "--output")}
    config = next((each for each in arguments if each.endswith(".toml") and each not in written), None)
    named = {"-c", "--config"} & {each.partition("=")[0] for each in arguments}
    if config is not None and not named and ("required" in message or "unrecognized" in message):
        return f"Give the configuration with -c: -c {config}"
    if "-c/--config" in message and "required" in message:
        return f"There is no ./reconciler.toml. Give the configuration with -c FILE, or set {CONFIG_VARIABLE}."
    if found := re.search(r"invalid choice: '?([^' ]*)'? \(choose from (.*)\)", message):
        choices = [each.strip(" '") for each in found[2].split(",")]
        if found[1] == config and "check" in choices:
            return f"A command is missing in front of the options, like: {prog} check -c {config}"
        if found[1] == "unresolved":
            return "Nothing was proven for an unresolved partition: give its offset with --set TOPIC:PARTITION=OFFSET."
        meant = _closest(found[1], choices, commands)
        before = arguments[: arguments.index(found[1])] if found[1] in arguments else ()
        if meant is None and "|" in message.partition(":")[0] and any(each.startswith("-") for each in before):
            return f"One of {', '.join(choices)} comes before the options."
        return meant
    if found := re.search(r"unrecognized arguments: (?:.* )?(--[\w-]+)", message):
        meant = _OPTION_SYNONYMS.get(found[1])
        others = {*options} - {found[1]}  # the help may name it in an example of another action
        near = [meant] if meant is not None and meant in others else _begun(found[1], others)
        near = near or near_names(found[1], others, 1)
        return f"Did you mean {' or '.join(near)}?" if near else None
    return None


def _begun(word: str, options: Collection[str]) -> list[str]:
    """The options that begin with ``word``."""
    return sorted({each for each in options if each.startswith(word)})[:MOST_NAMES]


def _closest(word: str, choices: Sequence[str], commands: Mapping[str, str]) -> str | None:
    is_command = set(choices) >= set(commands)
    meant = _SYNONYMS.get(word) if is_command else None
    near = [meant] if meant else near_names(word, choices, alike=0.7)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return "All commands: reconciler --help" if is_command else None
