"""Help, and the errors for command lines that cannot be parsed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from reconciler.cli.main import COMMANDS, full_parser, main
from reconciler.cli.terminal import help
from reconciler.cli.terminal.help import Parser, UsageError
from tests import ROOT

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("RECONCILER_CONFIG", raising=False)
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = int(stop.code or 0)
        return code, *capsys.readouterr()

    return command


def test_help_goes_to_stdout_and_is_no_failure(run: Run) -> None:
    assert run("--help")[0] == 0
    assert run("help") == run("--help") == run("-h")
    assert run("help", "plan") == run("plan", "--help")
    assert run("help", "config", "check") == run("config", "check", "--help")


@pytest.mark.parametrize("columns", [72, 80, 200])
@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_the_terminal_and_is_never_too_wide_to_read(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = run(name, "--help")
    text = re.sub(r"^  (\S+=\S+ )?reconciler .*$", "", out, flags=re.MULTILINE)  # examples are for copying, uncut
    assert max(map(len, text.splitlines())) <= min(columns, help.WIDEST)


def every_parser(parser: Parser) -> Iterator[Parser]:
    yield parser
    for inner in parser.actions.values():
        yield from every_parser(inner)


def test_no_command_takes_the_beginning_of_an_options_name() -> None:
    """The next version may have another option that begins so."""
    parsers = list(every_parser(full_parser()))
    for parser in parsers:
        names = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", parser.format_help()))
        begun = {name[:length] for name in names for length in range(3, len(name))} - names
        for word in sorted({each + value for each in begun for value in ("", "=kafka.sasl.password=x")}):
            with pytest.raises(UsageError, match=r"unrecognized arguments: --|required|There is no ./recon"):
                parser.parse_known_args([word])
    assert {"reconciler", "reconciler plan", "reconciler checkpoint show"} <= {each.prog for each in parsers}


def test_shtab_makes_completions_of_the_parser() -> None:
    command = [sys.executable, "-m", "shtab", "-s", "bash", "reconciler.cli.main.full_parser"]
    script = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    shell = 'source /dev/stdin; COMP_WORDS=(reconciler "$@"); COMP_CWORD=$#; _shtab_reconciler; echo "${COMPREPLY[@]}"'
    for words, offered in (
        ("roll", "rollback"),
        ("plan --form", "--format"),
        ("plan --accept ear", "early"),
        ("plan -c pypro", "pyproject.toml"),
    ):
        ended = subprocess.run(
            ["bash", "--norc", "-c", shell, "bash", *words.split()],
            input=script,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        assert (ended.stdout, ended.stderr) == (f"{offered}\n", "")


def test_the_value_of_a_misspelt_option_is_not_repeated(run: Run) -> None:
    """It may be a secret, and stderr is often kept."""
    code, out, err = run("init", "--clients", "sasl.password=open sesame", "--client-x=sasl.password=barley")
    assert (code, out) == (2, "")
    assert "unrecognized arguments: --clients, --client-x\n" in err
    assert "sesame" not in err
    assert "barley" not in err
    assert "sesame" not in run("init", "--stores", "postgresql://me:sesame@h/db?sslmode=require")[2]
    assert "sesame" not in run("plan", "postgresql://me:sesame@h/db")[2]


def test_help_loads_no_room_that_works() -> None:
    """Every start pays for what ``cli.main`` imports."""
    program = "import sys; from reconciler.cli.main import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stdout
    loaded = {name for name in printed.splitlines()[-1].split() if name.startswith("reconciler.")}
    assert "reconciler.cli.main" in loaded
    assert "reconciler.config.file" not in loaded
    assert not {name.split(".")[1] for name in loaded} & {
        "engine",
        "failover",
        "hook",
        "kafka",
        "spark",
        "stores",
        "trust",
        "watch",
    }
