"""``reconciler lab``: two clusters and a mirror that keep running, for trying things by hand."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli import arguments
from reconciler.cli.terminal.help import Help
from reconciler.cli.terminal.output import say, show_json
from reconciler.cli.terminal.table import Cell, count_cell, print_table
from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from reconciler.lab.standing import LabState, StandingLab

EXAMPLE = "reconciler lab up"
HELP = Help(
    """
    Two Kafka clusters, MirrorMaker 2 and a few thousand records on this machine, for trying things by hand. They keep
    running after the command, until `down`. Needs Java 17, and no Docker. The first `up` downloads Kafka, later ones
    take it from a cache.

    `up` also starts again what is not running: after `kill`, after a reboot, after an interrupt. The records and the
    addresses stay.
    """,
    [
        ("start it, or what is missing of it", EXAMPLE),
        ("what runs, on which ports, with which offsets", "reconciler lab status"),
        ("more records on the source, mirrored", "reconciler lab produce --records 500"),
        ("lose the source and the mirror, as in a disaster", "reconciler lab kill"),
        ("end it and delete its data", "reconciler lab down"),
    ],
    {
        ExitCode.OK: "done; status: all of it runs",
        ExitCode.USAGE: "Java is missing, or the folder is not a lab's",
        ExitCode.UNREACHABLE: "a part does not run or does not answer, or the jars could not be downloaded",
    },
    environment={
        "RECONCILER_CACHE": "the folder for downloaded jars, and for the lab (default: reconciler in XDG_CACHE_HOME)",
        "JAVA_HOME": "the Java installation",
    },
    see_also=("docs/tutorial.md", "reconciler demo"),
)
ACTIONS = {
    "up": "start the lab, or what is not running of it",
    "status": "show what runs, its addresses, and the topics' offsets; read-only",
    "produce": "write more records on the source, and wait for the mirror",
    "kill": "kill the source and the mirror; `up` starts them again",
    "down": "end the lab and delete its data",
}
ROLES = {"a": "the source", "b": "the destination", "mirror": "MirrorMaker 2, copies every topic from a to b"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="|".join(ACTIONS), required=True)
    for name, summary in ACTIONS.items():
        action = actions.add_parser(name, help=summary, description=summary)
        action.add_argument(
            "--folder", metavar="DIR", type=Path, help="the lab's folder (default: lab, in the folder of the cache)"
        )
        if name == "status":
            arguments.add_format(action)
        if name == "produce":
            action.add_argument("--records", metavar="N", type=int, default=1_000, help="how many (default: 1000)")


def run(options: argparse.Namespace) -> ExitCode:
    from reconciler.lab.standing import StandingLab

    lab = StandingLab(options.folder, _say)
    return {"up": _up, "status": _status, "produce": _produce, "kill": _kill, "down": _down}[options.action](
        lab, options
    )


def _say(*lines: str) -> None:
    say(*lines)
    sys.stdout.flush()  # `up` takes a while, and its output may go into a pipe


def _up(lab: StandingLab, options: argparse.Namespace) -> ExitCode:
    _say("The lab is up." if lab.up() else "The lab was up already.")
    state = lab.state()
    _show(lab, state)
    _other_ports(state)
    offsets, end = lab.command("status"), lab.command("down")
    _say("", f"Offsets: {offsets} · end it: {end} · a walk through it: docs/tutorial.md")
    return ExitCode.OK


def _status(lab: StandingLab, options: argparse.Namespace) -> ExitCode:
    state = lab.state()
    if options.format == "json":
        show_json({"folder": str(lab.folder), **asdict(state), "up": state.is_up})
    else:
        _show(lab, state)
        _show_places(state)
        if not state.whole:
            _say("", f"Its first `up` is still at work, or was interrupted. Begin again: {lab.command('up')}")
        elif not state.is_up:
            _say("", f"Start the parts that are not running, with their data: {lab.command('up')}")
    return ExitCode.OK if state.is_up else ExitCode.UNREACHABLE


def _produce(lab: StandingLab, options: argparse.Namespace) -> ExitCode:
    if options.records < 1:
        raise ConfigError(f"--records {options.records} is not a number above 0.")
    lab.produce(options.records)
    _say(f"{options.records:,} more records are on a, and their copies on b.")
    return ExitCode.OK


def _kill(lab: StandingLab, options: argparse.Namespace) -> ExitCode:
    lost = lab.lose_source()
    _say(
        f"Cluster a and the mirror are killed; only b is left. To have them back: {lab.command('up')}"
        if lost
        else "Neither cluster a nor the mirror was running."
    )
    return ExitCode.OK


def _down(lab: StandingLab, options: argparse.Namespace) -> ExitCode:
    ended = lab.down()
    _say(f"The lab is down, and {lab.folder} is deleted." if ended else f"There is no lab in {lab.folder}.")
    return ExitCode.OK


def _show(lab: StandingLab, state: LabState) -> None:
    _say(f"It is in {lab.folder}", "")
    rows = [
        (
            Cell(part.name),
            Cell("not running", "bad") if part.pid is None else Cell("running", "good"),
            Cell(part.address or "-"),
            Cell(ROLES[part.name]),
        )
        for part in state.parts
    ]
    print_table(("PART", "STATE", "ADDRESS", "IT IS"), rows, right=frozenset())


def _show_places(state: LabState) -> None:
    from reconciler.lab.standing import GROUP

    if not state.places:
        return
    rows = [
        (
            Cell(str(TopicPartition(place.topic, place.partition))),
            Cell(place.cluster),
            count_cell(place.first),
            count_cell(place.next),
            count_cell(place.group),
        )
        for place in state.places
    ]
    _say("")
    heads = ("PARTITION", "CLUSTER", "FIRST", "NEXT", f"GROUP {GROUP}")
    print_table(heads, rows, right=frozenset({2, 3, 4}))


def _other_ports(state: LabState) -> None:
    from reconciler.lab.ports import HOST
    from reconciler.lab.standing import PORTS

    for part in state.parts:
        if part.address and part.address != (usual := f"{HOST}:{PORTS[part.name]}"):
            _say("", f"Another program has {usual}: write {part.address} wherever the tutorial has {usual}.")
