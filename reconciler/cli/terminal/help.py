"""How help looks: the overview of all commands, and what a command's ``--help`` says beside its options.

A command's module says it in ``HELP``; exit codes have their words in ``core.errors.ExitCode``, and a command only
those that differ.
"""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.cli.terminal.usage import CONFIG_VARIABLE as CONFIG_VARIABLE
from reconciler.core.errors import ExitCode

CONFIG_NAMED = "the configuration, where the command line has no -c"
WIDEST = 100
"""Columns. Longer lines are hard to read, however wide the terminal is."""

WHEN: Mapping[str, Sequence[str]] = {
    "before a failover": ("init", "config", "track", "anchors", "watch", "drill"),
    "a failover": ("check", "plan", "show", "sign", "verify", "apply", "hook", "checkpoint", "rollback"),
    "after it": ("audit", "audit-log", "compact"),
    "to learn it": ("demo", "completion"),
}
"""The commands by the time when they are needed. What is in none of these is listed at the end."""


@dataclass(frozen=True, slots=True)
class Help:
    """What a command's help says: whole sentences, examples (what for, and the command), and so on.

    ``exits``: the exit codes it can end with; "" stands for the contract's own words. ``environment`` and ``files``:
    what each is for. ``see_also``: commands and pages.
    """

    description: str
    examples: Sequence[tuple[str, str]]
    exits: Mapping[ExitCode, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    see_also: Sequence[str] = ()


def columns() -> int:
    """Columns that help may fill: the terminal's, less two, as argparse has it."""
    return max(40, min(shutil.get_terminal_size((WIDEST, 24)).columns - 2, WIDEST))


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Options as argparse shows them; descriptions and epilogs as they are, since they are wrapped already."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=columns())


def describe(parser: argparse.ArgumentParser, told: Help) -> None:
    """Put a command's help into its parser."""
    parser.description = _paragraphs(told.description)
    parser.epilog = "\n\n".join(_sections(told))
    for inner in actions(parser):
        inner.formatter_class = Formatter
        inner.epilog = inner.epilog or f"Examples and exit codes: {parser.prog} --help"


def actions(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """The parsers of a command's own actions, like ``export`` of ``anchors``."""
    found = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return [inner for each in found for inner in each.choices.values()]


def _sections(told: Help) -> Iterable[str]:
    examples = []
    for what_for, command in told.examples:
        examples += [*([_wrapped(f"# {what_for}", "  ", "  # ")] if what_for else []), f"  {command}"]
    yield "examples:\n" + "\n".join(examples)
    if told.exits:
        yield exit_codes(told.exits)
    for title, entries in (("environment", told.environment), ("files", told.files)):
        if entries:
            yield f"{title}:\n{_listed(entries)}"
    if told.see_also:
        yield "see also:\n" + _wrapped(", ".join(told.see_also), "  ", "  ")


def exit_codes(codes: Mapping[ExitCode, str]) -> str:
    """A section of exit codes, each with its words, or the contract's where they are empty."""
    return f"exit codes:\n{_listed({str(int(code)): codes[code] or code.meaning for code in sorted(codes)})}"


def overview(usage: str, commands: Mapping[str, str], options: str) -> str:
    """All commands by the time when they are needed."""
    listed = {name for names in WHEN.values() for name in names}
    groups = {**WHEN, "also": [name for name in commands if name not in listed]}
    size = max(map(len, commands))
    parts = [
        usage,
        _paragraphs(
            "After a Kafka failover: the right offset for every partition, proven against the destination's own "
            "records before the job starts."
        ),
    ]
    for title, names in groups.items():
        entries = {name: commands[name] for name in names if name in commands}
        if entries:
            parts.append(f"{title}:\n{_listed(entries, size)}")
    parts += [
        options,
        exit_codes(dict.fromkeys(ExitCode, "")),
        _paragraphs(
            "To begin: reconciler init writes a configuration, reconciler config check explains it and tries every "
            "connection, reconciler check says what a failover would find. Help with a command: reconciler help "
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
        drop_whitespace=True,
    )
