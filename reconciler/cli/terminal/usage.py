"""The command line's parser: argparse's, which raises its complaints, and never guesses or repeats a value."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from reconciler.core.text import visible
from reconciler.near import near_names

CONFIG_VARIABLE = "RECONCILER_CONFIG"
"""The environment variable with the configuration's path, for command lines without ``-c``."""

CONFIG_HERE = Path("reconciler.toml")
"""The configuration of a command line that names none."""

_FILES = {"bash": "_shtab_compgen_files", "zsh": "_files"}
"""How shtab completes a file."""
_EMPTY = "is empty. If it comes from a variable, that is not set"


class UsageError(Exception):
    """The usage line of the parser that complains, and the complaint."""


def _path(text: str) -> Path:
    if not text:  # it would be the working directory
        raise argparse.ArgumentTypeError(_EMPTY)
    return Path(text)


class _Once(argparse.Action):
    """An argument with one value: a second one would silently replace the first. The value may be a secret."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        if self.type is Path:
            self.complete = _FILES

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        if values == "":
            raise argparse.ArgumentError(self, _EMPTY)
        first = getattr(namespace, self.dest, self.default)
        if option is not None and first is not self.default and first != values:
            parser.error(f"{option} is given twice, with different values: this command takes one")
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser for one command, or for one of its actions, whose parsers it keeps in ``actions``.

    Options are written in full: the next version may have another option that begins like one. An option with one value
    is given once.
    """

    def __init__(self, **words: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **words})
        self.actions: dict[str, Parser] = {}
        self.color = False  # 3.14 would put escape sequences into the usage line of an error
        self.register("action", None, _Once)
        self.register("action", "store", _Once)
        self.register("type", Path, _path)

    def add_subparsers(self, **words: Any) -> Any:
        made = super().add_subparsers(**words)
        self.actions = made.choices
        return made

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, which lets a command's unknown options pass: its caller would name them with their values."""
        given = list(sys.argv[1:] if args is None else args)
        options = given[: given.index("--")] if "--" in given else given
        if empty := [word for word in options if word.startswith("--") and word.endswith("=--")]:
            self.error(f"argument {empty[0].removesuffix('=--')}: expected one argument")  # 3.11 makes a list of it
        known, unknown = super().parse_known_args(given, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {self._named(unknown)}")
        return known, unknown

    def _named(self, unknown: Sequence[str]) -> str:
        """The names of unknown options, without their values, which may be secrets; else a word that is no address."""
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        others = [each for each in re.findall(r"--[a-z][\w-]+", self.format_help()) if each not in options]
        near = near_names(options[0], others, 1) if options else ()
        word = unknown[0] if re.fullmatch(r"[\w./-]+", unknown[0]) else "…"
        return (", ".join(options) or word) + (f"\nDid you mean {near[0]}?" if near else "")

    def error(self, message: str) -> NoReturn:
        if "required: -c/--config" in message:
            message = f"There is no ./{CONFIG_HERE}. Give the configuration with -c FILE, or set {CONFIG_VARIABLE}."
        lines = "\n".join(visible(line) for line in message.split("\n"))
        raise UsageError(f"{self.format_usage()}{self.prog}: {lines}")

    def print_help(self, file: Any = None) -> None:
        """As argparse's, which ignores errors: help that a full disk did not take was not shown."""
        (sys.stdout if file is None else file).write(self.format_help())

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """As argparse's, after writing out what was printed: an error then shows that it was not written."""
        sys.stdout.flush()
        super().exit(status, message)
