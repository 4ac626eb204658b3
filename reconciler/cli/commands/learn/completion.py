"""``reconciler completion``: a script that completes commands, options, files and job names in a shell.

shtab generates it from the parsers of the command line, so every option is included.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reconciler.cli.terminal.help import Help
from reconciler.cli.terminal.output import say, show_text
from reconciler.cli.terminal.usage import CONFIG_VARIABLE
from reconciler.core.errors import ConfigError, ExitCode

SHELLS = ("bash", "zsh", "fish")
EXAMPLE = "reconciler completion bash > ~/.local/share/bash-completion/completions/reconciler"
HELP = Help(
    """
    Prints a script that makes the tab key complete commands, options, their choices, file names, and after --job the
    names of the jobs in the configuration (that of -c, or of RECONCILER_CONFIG).

    Save it where the shell looks for such scripts, and start a new shell. Save it again after an upgrade.
    """,
    [
        ("bash, with the package bash-completion", EXAMPLE),
        ("bash, for this shell only", 'eval "$(reconciler completion bash)"'),
        ("zsh; the folder must be in fpath, before compinit runs", "reconciler completion zsh > ~/.zfunc/_reconciler"),
        ("fish", "reconciler completion fish > ~/.config/fish/completions/reconciler.fish"),
    ],
    {ExitCode.OK: "the script was printed", ExitCode.USAGE: ""},
    environment={CONFIG_VARIABLE: "the configuration whose jobs are listed, if the command line has no -c"},
)

_DIRECTORIES = frozenset({"DIR", "FOLDER"})
_FILES = frozenset({"FILE", "PLAN", "PATH", "NEW_PATH"})

# Names are compared literally and quoted: a shell must not execute text from a configuration.
_BASH = """
_reconciler_jobs() {
  local file="${RECONCILER_CONFIG-}" at name
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "${COMP_WORDS[at]}" in
      -c|--config)
        file="${COMP_WORDS[at + 1]}"
        [ "$file" = "=" ] && file="${COMP_WORDS[at + 2]}"
        ;;
    esac
  done
  while IFS= read -r name; do
    [[ "$name" == "$1"* ]] && printf '%q\\n' "$name"
  done < <(reconciler completion --jobs "${file/#\\~/$HOME}" 2>/dev/null)
}
"""
_ZSH = """
_reconciler_jobs() {
  local file=$RECONCILER_CONFIG
  local -i at
  for ((at = 1; at < CURRENT; at++)); do
    case $words[at] in
      -c|--config) file=${(Q)words[at + 1]} ;;
      --config=*) file=${(Q)words[at]#--config=} ;;
    esac
  done
  local -a names=(${(f)"$(reconciler completion --jobs "${file/#\\~/$HOME}" 2>/dev/null)"})
  compadd -a names
}
"""
_FISH = """
function __reconciler_jobs
  set -l file $RECONCILER_CONFIG
  set -l words (commandline -opc)
  for at in (seq (count $words))
    switch $words[$at]
      case -c --config
        set file $words[(math $at + 1)]
      case '--config=*'
        set file (string replace -- --config= '' $words[$at])
    end
  end
  reconciler completion --jobs (string replace -r -- '^~' $HOME "$file") 2>/dev/null
end
"""
PREAMBLES = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
JOBS = {"bash": "_reconciler_jobs", "zsh": "_reconciler_jobs", "fish": "(__reconciler_jobs)"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="|".join(SHELLS), nargs="?", choices=SHELLS, help="the shell")
    parser.add_argument(
        "--jobs", metavar="FILE", type=Path, help="only list the jobs of a configuration; the script uses this"
    )


def run(options: argparse.Namespace) -> ExitCode:
    if options.jobs is not None:
        for name in job_names(options.jobs):
            say(name)
        return ExitCode.OK
    if options.shell is None:
        raise ConfigError("No shell is given.", hint=f"Name one: {', '.join(SHELLS)}.")
    show_text(script(options.shell) + "\n")
    return ExitCode.OK


def script(shell: str) -> str:
    """The script for a shell. Raises ConfigError if shtab is not installed."""
    try:
        import shtab
    except ModuleNotFoundError as error:
        raise ConfigError(
            "This command needs the Python package shtab, which is not installed.",
            hint="Run: pip install 'failover-offset-reconciler[completion]'",
        ) from error
    from reconciler.cli.main import full_parser

    parser = full_parser()
    for action in _actions(parser):
        kind = _kind(action)
        if kind is not None:
            action.complete = getattr(shtab, kind)
        elif action.dest == "job":
            action.complete = JOBS
    return str(shtab.complete(parser, shell=shell, preamble=PREAMBLES[shell]))


def job_names(path: Path) -> list[str]:
    """The names of the jobs in a configuration, as far as it can be read, without secrets and without checks."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("jobs", [])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return []
    names = [table.get("name") for table in tables if isinstance(table, dict)] if isinstance(tables, list) else []
    return [name for name in names if isinstance(name, str) and name.isprintable()]


def _actions(parser: argparse.ArgumentParser) -> Iterator[Any]:
    """Every option and argument, including those of commands and their actions."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)


def _kind(action: argparse.Action) -> str | None:
    if action.choices is not None or not isinstance(action.metavar, str):
        return None
    if action.metavar in _DIRECTORIES:
        return "DIRECTORY"
    return "FILE" if action.metavar in _FILES or action.type is Path else None
