"""Parts of the reference that come from the code: each command's description and options, the exit codes,
and the metrics.

In a page, such a part is between ``<!--NAME-->`` and ``<!--end-->``; the rest of the page is written by hand.
``python -m tests.documents.generate`` writes all parts again.
"""

from __future__ import annotations

import argparse
import importlib
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from reconciler.cli.main import COMMANDS, module_of
from reconciler.cli.terminal.help import Help, Parser
from reconciler.core.errors import ExitCode
from tests import ROOT
from tests.documents.metrics_page import metric_parts

REFERENCE = ROOT / "docs" / "reference"
DECISIONS = ("--set", "--set-time", "--accept")
SHARED = ("--config", "--job", "--to", "--yes", *DECISIONS, "--conf")
"""Options that ``commands.md`` explains once, unless a command's own words differ."""
PART = re.compile(r"(?<=<!--)(?P<name>(?!end-)[\w-]+)-->\n.*?(?=<!--end-->)", re.DOTALL)
WIDTH = 118
DIFFERENT = (ExitCode.NEEDS_PERSON,)
"""Exit codes whose causes differ most from command to command."""


def parser_of(command: str) -> Parser:
    """The command's own parser, without the options of every command."""
    parser = Parser(prog=f"reconciler {command}", add_help=False)
    importlib.import_module(module_of(command)).add_arguments(parser)
    return parser


def help_of(command: str) -> Help:
    found = importlib.import_module(module_of(command)).HELP
    assert isinstance(found, Help)
    return found


def parsers_of(command: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """The command and its parser; for one with actions, each action and its parser."""
    parser = parser_of(command)
    if not parser.actions:
        yield command, parser
    for name, inner in parser.actions.items():
        yield f"{command} {name}", inner


def options_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    hidden = (argparse._HelpAction, argparse._SubParsersAction)
    return [each for each in parser._actions if each.help != argparse.SUPPRESS and not isinstance(each, hidden)]


def usage(name: str, parser: argparse.ArgumentParser) -> str:
    """The command's usage line: the options that it must have, then its arguments; the table has the others."""
    needed, arguments, others = [f"reconciler {name}"], [], []
    for option in options_of(parser):
        if not option.option_strings:
            more = " …" if option.nargs in ("+", "*") else ""
            is_needed = option.required and option.nargs != "*"
            arguments.append(f"{_value(option)}{more}" if is_needed else f"[{_value(option)}{more}]")
        elif option.required or "./reconciler.toml" in str(option.help):  # with -c, where the tests run decides
            more = " …" if isinstance(option, argparse._AppendAction) else ""
            needed.append(f"{option.option_strings[0]} {_value(option)}{more}")
        elif not others:
            others.append("[OPTION …]")
    return " ".join([*needed, *others, *arguments])


def _is_shared(option: argparse.Action) -> bool:
    return bool({*option.option_strings} & {*SHARED})


def _value(option: argparse.Action) -> str:
    if option.choices is not None and option.metavar is None:
        return "|".join(map(str, option.choices))
    return str(option.metavar or option.dest.upper()) if option.nargs != 0 else ""


def _row(option: argparse.Action) -> str:
    names = ", ".join(option.option_strings)
    value = _value(option)
    text = " ".join((option.help or "").replace("%(default)s", str(option.default)).split())
    name = " ".join(filter(None, [names, value])).replace("|", "\\|")
    return f"|`{name}`|{text}|"


def command_part(command: str) -> str:
    """A command's usage, its description, and the options that are its own, in a table for each action."""
    parsers = dict(parsers_of(command))
    description = help_of(command).description or ""
    lines = ["", *(f"    {usage(name, parser)}" for name, parser in parsers.items()), ""]
    lines += [f"{textwrap.fill(' '.join(part.split()), WIDTH)}\n" for part in description.strip().split("\n\n")]
    for name, parser in parsers.items():
        if rows := [_row(each) for each in options_of(parser) if not _is_shared(each)]:
            lines += [f"|{name.removeprefix(command).strip()}||", "|---|---|", *rows, ""]
    return "\n".join(lines)


def exit_part() -> str:
    """A row for each of these codes of each command, in the words of its help; equal words share a row."""
    rows: dict[tuple[ExitCode, str], list[str]] = {}
    for command in COMMANDS:
        for code, text in help_of(command).exits.items():
            rows.setdefault((code, text or code.meaning), []).append(command)
    lines = ["", "|code|command|what happened|", "|---|---|---|"]
    for (code, text), commands in sorted(rows.items(), key=lambda each: each[0][0]):
        if code in DIFFERENT:
            lines.append(f"|{int(code)}|{', '.join(f'`{each}`' for each in commands)}|{text}|")
    return "\n".join([*lines, ""])


def parts() -> Mapping[str, str]:
    return {**{name: command_part(name) for name in COMMANDS}, "exit-codes": exit_part(), **metric_parts()}


def pages() -> list[Path]:
    return [path for path in sorted(REFERENCE.rglob("*.md")) if PART.search(path.read_text(encoding="utf-8"))]


def filled(text: str, parts: Mapping[str, str]) -> str:
    """A page's text with its parts as the code has them. Raises KeyError for a part that nothing makes."""
    return PART.sub(lambda part: f"{part['name']}-->\n{parts[part['name']]}\n", text)


if __name__ == "__main__":
    made = parts()
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")
