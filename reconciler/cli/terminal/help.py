"""The command line's parser, and its help: the overview of all commands, and the sections below a command's options.

A command's module describes itself in its docstring and in ``HELP``. Exit codes have their words in
``core.errors.ExitCode``; a command gives its own words only where they differ. The parser is argparse's, but it raises
its complaints, and refuses abbreviated options and options that are given twice.
"""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from reconciler.core.errors import ExitCode
from reconciler.core.text import visible
from reconciler.near import near_names

CONFIG_VARIABLE = "RECONCILER_CONFIG"
"""The environment variable with the configuration's path, for command lines without ``-c``."""

CONFIG_HERE = Path("reconciler.toml")
"""The configuration of a command line that names none."""

CONFIG_ENVIRONMENT = {CONFIG_VARIABLE: "the configuration, if the command line has no -c; else ./reconciler.toml"}
OPTIONAL_CONFIG_ENVIRONMENT = {CONFIG_VARIABLE: "the configuration, if the command line has no -c"}
"""For commands that also work without a configuration: they do not look for ./reconciler.toml."""
EXPLAINED = ("anchor", "finding")
"""Words that a command's help explains where it uses them."""
WIDEST = 100
"""Columns. Longer lines are hard to read, however wide the terminal is."""


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """Commands that are needed at the same time: their heading in the overview, and their summaries."""

    title: str
    commands: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Help:
    """A command's help: whole sentences, examples (purpose and command), and sections below the options.

    ``exits``: the exit codes that it can end with; "" stands for the contract's own words. ``findings``,
    ``environment`` and ``files``: the meaning of each finding, variable and file. ``see_also``: commands and pages.
    """

    description: str | None
    examples: Sequence[tuple[str, str]]
    exits: Mapping[ExitCode, str] = field(default_factory=dict)
    findings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    see_also: Sequence[str] = ()


def columns() -> int:
    """Columns that help may fill: the terminal's, less two, as argparse does."""
    import shutil  # imported here: a start that shows no help is faster without it

    return max(40, min(shutil.get_terminal_size((WIDEST, 24)).columns - 2, WIDEST))


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Options in argparse's layout; descriptions and epilogs as they are, since they are wrapped already."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=columns())


def describe(parser: Parser, help_text: Help) -> None:
    """Put a command's help into its parser."""
    from reconciler.cli.terminal.report import TERMS  # 20 ms that the overview saves

    parser.description = _paragraphs(help_text.description or "")
    words = [word for word in EXPLAINED if word in parser.format_help()]
    explained = [f"words:\n{_listed({word: TERMS[word] for word in words})}"] if words else []
    parser.epilog = "\n\n".join([*explained, *_sections(help_text)])
    for inner in parser.actions.values():
        inner.formatter_class = Formatter
        inner.epilog = inner.epilog or f"Examples and exit codes: {parser.prog} --help"


def _sections(help_text: Help) -> Iterable[str]:
    examples = []
    for purpose, command in help_text.examples:
        examples += [*([_wrapped(f"# {purpose}", "  ", "  # ")] if purpose else []), f"  {command}"]
    yield "examples:\n" + "\n".join(examples)
    if help_text.exits:
        yield exit_codes(help_text.exits)
    sections = {"findings": help_text.findings, "environment": help_text.environment, "files": help_text.files}
    for title, entries in sections.items():
        if entries:
            yield f"{title}:\n{_listed(entries)}"
    if help_text.see_also:
        yield "see also:\n" + _wrapped(", ".join(help_text.see_also), "  ", "  ")


def exit_codes(codes: Mapping[ExitCode, str]) -> str:
    """A section of exit codes with their words; an empty text stands for the contract's words."""
    return f"exit codes:\n{_listed({str(int(code)): codes[code] or code.meaning for code in sorted(codes)})}"


def overview(usage: str, groups: Sequence[CommandGroup], options: str) -> str:
    """All commands by the time when they are needed."""
    size = max(len(name) for group in groups for name in group.commands)
    parts = [
        usage,
        _paragraphs(
            """
            After a Kafka failover: the right offset for every partition, proven against the destination's own records
            before the job starts.

            An anchor is the identity of the last record that a job processed: its offset, time, id and fingerprint. A
            finding says what is known of one partition, from exact (the job starts right behind that record) to
            unresolved (nothing could be proven). All findings: reconciler help plan
            """
        ),
        *(f"{group.title}:\n{_listed(group.commands, size)}" for group in groups),
        options,
        exit_codes(dict.fromkeys(ExitCode, "")),
        _paragraphs(
            "To begin: reconciler init writes a configuration, reconciler config check explains it and tries every "
            "connection, reconciler plan reports what a failover would find. Help with a command: reconciler help "
            "COMMAND."
        ),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _listed(entries: Mapping[str, str], size: int | None = None) -> str:
    size = size or min(30, max(map(len, entries)))
    lines = []
    for name, text in entries.items():
        if len(name) > size:
            lines += [f"  {name}", _wrapped(text, " " * (size + 4), " " * (size + 4))]
        else:
            lines.append(_wrapped(f"{name:<{size}}  {text}", "  ", " " * (size + 4)))
    return "\n".join(lines)


def _paragraphs(text: str) -> str:
    return "\n\n".join(_wrapped(" ".join(part.split()), "", "") for part in text.strip().split("\n\n"))


def _wrapped(text: str, first: str, others: str) -> str:
    return textwrap.fill(
        text,
        columns(),
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


# ---------------------------------------------------------------- the parser


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
        self._given: list[str] = []
        self.color = False  # 3.14 would put escape sequences into the usage line of an error
        self.register("action", None, _Once)
        self.register("action", "store", _Once)
        self.register("type", Path, _path)

    def add_subparsers(self, **words: Any) -> Any:
        made = super().add_subparsers(**words)
        self.actions = made.choices
        return made

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse's, but refuse unknown options here: argparse's caller would print their values."""
        given = list(sys.argv[1:] if args is None else args)
        self._given = options = given[: given.index("--")] if "--" in given else given
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
        meant = self._meant(message)
        if "required: -c/--config" in message:
            message = f"There is no ./{CONFIG_HERE}. Give the configuration with -c FILE, or set {CONFIG_VARIABLE}."
        lines = "\n".join(visible(line) for line in [*message.split("\n"), *meant])
        raise UsageError(f"{self.format_usage()}{self.prog}: {lines}")

    def _meant(self, message: str) -> list[str]:
        """A hint about a word that argparse refuses, or about an unknown option where it misses a required one."""
        if refused := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            near = near_names(refused[1], re.findall(r"[\w-]+", refused[2]), 1)
            return [f"Did you mean {near[0]}?"] if near else []
        known = self._option_string_actions
        words = [word.partition("=")[0] for word in self._given] if "required" in message else []
        unknown = [word for word in words if word.startswith("--") and word not in known]
        near = near_names(unknown[0], known, 1) if unknown else []
        return [f"There is no {unknown[0]}. Did you mean {near[0]}?"] if near else []

    def print_help(self, file: Any = None) -> None:
        """As argparse's, but let errors pass: help that could not be written was not shown."""
        (sys.stdout if file is None else file).write(self.format_help())

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """As argparse's, after writing out what was printed: an error then shows that it was not written."""
        sys.stdout.flush()
        super().exit(status, message)
