"""What most commands need: options, the configuration, and the world outside."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from reconciler.cli.terminal.usage import CONFIG_VARIABLE
from reconciler.clock import clock_ms
from reconciler.config.file import Config, load_config
from reconciler.config.secrets import filled, remember
from reconciler.core.errors import ConfigError
from reconciler.core.verdicts import Verdict
from reconciler.engine import Progress
from reconciler.failover.check import ByHand, Outside
from reconciler.formats.plan import Plan, parse_plan


def add_config(parser: argparse.ArgumentParser) -> None:
    """-c, which must be given unless the environment names a configuration."""
    named = os.environ.get(CONFIG_VARIABLE)
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        required=not named,
        default=Path(named) if named else None,
        type=Path,
        help=f"the configuration, a TOML file (default: ${CONFIG_VARIABLE})",
    )


def add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", metavar="NAME", help="only this job of the configuration")


def add_by_hand(parser: argparse.ArgumentParser) -> None:
    """--set and --accept: a person's word, kept in the plan."""
    group = parser.add_argument_group("a person's word, kept in the plan")
    group.add_argument(
        "--set",
        dest="offsets",
        metavar="TOPIC:PARTITION=OFFSET",
        action="append",
        default=[],
        help="start this partition at this offset of the destination, whatever was found (repeatable)",
    )
    group.add_argument(
        "--accept",
        dest="accepted",
        metavar="VERDICT",
        action="append",
        default=[],
        choices=[verdict.value for verdict in Verdict if verdict is not Verdict.UNRESOLVED],
        help="let partitions with this verdict start where they can (repeatable; unresolved ones need --set)",
    )


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")


def by_hand(options: argparse.Namespace) -> ByHand:
    """The parsed --set and --accept. Raises ``ConfigError`` for what cannot be read."""
    offsets: dict[tuple[str, int], int] = {}
    for text in options.offsets:
        place, _, offset = text.rpartition("=")
        topic, _, partition = place.rpartition(":")
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            raise ConfigError(f"--set {text} is not TOPIC:PARTITION=OFFSET.", hint="For example: --set a.events:3=1200")
        if offsets.setdefault((topic, int(partition)), int(offset)) != int(offset):
            raise ConfigError(f"--set gives two offsets for {topic}:{partition}.", hint="Leave one of them out.")
    return ByHand(offsets, frozenset(Verdict(value) for value in options.accepted))


def request_timeout_s(config: Config) -> float:
    """How long one request to the destination may take, in seconds."""
    return min(10.0, config.search.deadline_s)


@contextmanager
def outside(config: Config) -> Iterator[Outside]:
    """The destination's log, the stores and the clocks; progress goes to stderr if that is a terminal."""
    from reconciler.kafka.reader import KafkaLogReader
    from reconciler.stores.registry import open_store

    reader = KafkaLogReader(config.destination.client, timeout_s=request_timeout_s(config))
    progress = _terminal_progress() if sys.stderr.isatty() else None
    try:
        yield Outside(
            reader=reader,
            open_store=partial(open_store, kafka_client=config.destination.client, anchors=config.anchor_store),
            monotonic=time.monotonic,
            now_ms=clock_ms,
            on_progress=progress,
        )
    finally:
        reader.close()


def _terminal_progress() -> Callable[[Progress], None]:
    def show(progress: Progress) -> None:
        text = f"round {progress.rounds}: {progress.done} of {progress.partitions} partitions done"
        print(
            f"\r\033[K{text}",
            end="\r\033[K" if progress.done == progress.partitions else "",
            file=sys.stderr,
            flush=True,
        )

    return show


_WITH_LOGINS = ("option", "kafka_option", "source_option")
"""Options for Spark's sources."""


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` texts. Raises ConfigError for one that is not.

    Where a value may be a login, it can name a variable or a file as the configuration does: everybody on a machine can
    read its command lines.
    """
    found = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name:
            shown = "…" if option in _WITH_LOGINS else text
            raise ConfigError(f"--{option.replace('_', '-')} {shown} is not NAME=VALUE.")
        found[name] = value
    if option not in _WITH_LOGINS:
        return found
    whole: dict[str, str] = filled(found, os.environ, {})
    remember(found, whole)
    return whole


def read_config(options: argparse.Namespace) -> Config:
    return load_config(options.config)


def read_plan(path: Path) -> Plan:
    """A plan file. Raises ``ConfigError`` if it cannot be read, ``Changed`` if it is not as it was written."""
    return read_plan_file(path)[0]


def read_plan_file(path: Path) -> tuple[Plan, bytes]:
    """A plan and the bytes of its file, read once: what is signed is what is parsed. Raises as ``read_plan``."""
    try:
        content = path.read_bytes()
        text = content.decode()
    except FileNotFoundError as error:
        raise ConfigError(f"There is no plan {path}.", hint="Make one with: reconciler plan -c FILE -o PLAN") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The plan {path} cannot be read: {error}.") from error
    return parse_plan(text), content


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal unless ``yes``. Raises ``ConfigError`` where nobody can be asked or the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("Nobody is there to confirm this.", hint="Add --yes. Nothing was written.")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("Not confirmed: nothing was written.")
