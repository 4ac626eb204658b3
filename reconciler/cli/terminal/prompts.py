"""Questions on a terminal: confirmations, and questions with a default for an empty answer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from reconciler.cli.terminal.output import line, say, show
from reconciler.core.errors import ConfigError


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal unless ``yes``. Raises ConfigError if stdin is not a terminal or the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "This needs a confirmation, and stdin is not a terminal.", hint="Add --yes. Nothing was written."
        )
    show(line(f"{question} [y/N] "), stream=sys.stderr, end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("Not confirmed: nothing was written.")


class Prompt:
    """Asks on stderr and reads stdin; with ``yes`` every question gets its default answer."""

    def __init__(self, *, yes: bool) -> None:
        self._yes = yes

    @classmethod
    def on_this_terminal(cls, *, yes: bool) -> Prompt:
        """Raises ConfigError if stdin is not a terminal and ``yes`` is not set."""
        if not yes and not sys.stdin.isatty():
            raise ConfigError(
                "Questions need a terminal, and stdin is none.",
                hint="Add --yes to accept the findings, and give the rest as options.",
            )
        return cls(yes=yes)

    def text(self, question: str, default: str | None = None, fits: Callable[[str], str | None] | None = None) -> str:
        """An answer; ``fits`` returns what is wrong with one, or None. Raises ConfigError without an answer."""
        if self._yes:
            if default is None:
                raise ConfigError(f"{question}: not known.", hint="Give it as an option, see --help.")
            return default
        while True:
            hint = f" [{default}]" if default else ""
            show(line(f"{question}{hint}: "), stream=sys.stderr, end="")
            typed = sys.stdin.readline()
            if not typed:
                raise ConfigError("No answer: nothing was written.")
            answer = typed.strip() or default
            wrong = "an answer is needed" if not answer else fits(answer) if fits else None
            if answer and wrong is None:
                return answer
            say(f"  {wrong}", stream=sys.stderr)

    def several(self, question: str, choices: Sequence[str]) -> list[str]:
        """Some of the choices, by number or name; all of them for an empty answer."""
        for number, choice in enumerate(choices, start=1):
            if not self._yes:
                say(f"  {number}  {choice}", stream=sys.stderr)
        names = {**{str(number): choice for number, choice in enumerate(choices, start=1)}, **{c: c for c in choices}}

        def fits(answer: str) -> str | None:
            unknown = [word for word in _words(answer) if word not in names and word != "all"]
            return f"{unknown[0]} is none of them" if unknown else None

        picked = _words(self.text(question, "all", fits))
        return list(choices) if "all" in picked else list(dict.fromkeys(names[word] for word in picked))


def _words(answer: str) -> list[str]:
    return [word.strip() for word in answer.split(",") if word.strip()]
