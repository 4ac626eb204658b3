"""Runs a whole failover on this machine: two Kafka clusters, MirrorMaker 2 and a PySpark job of two queries. One query
is counted by ids, the other is stateful and compared with a plain count. Needs Java 17. The first run downloads
Kafka and Spark's Kafka connector; later runs take them from a cache.

Nothing stays. With `--keep`, both clusters and the mirror run again afterwards, until `reconciler demo stop`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli.terminal.help import Help
from reconciler.cli.terminal.output import say
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.core.text import command

if TYPE_CHECKING:
    from reconciler.demo.scenario import Demo, DemoResult

EXAMPLE = "reconciler demo"
HELP = Help(
    __doc__,
    [
        ("run it, and clean up", EXAMPLE),
        ("keep the clusters and the mirror running, to explore", "reconciler demo --keep"),
        ("lose the source and the mirror, as in a disaster", "reconciler demo stop --source"),
        ("end all of it, and delete its data", "reconciler demo stop"),
    ],
    {
        ExitCode.OK: "nothing lost, nothing doubled, all counts equal; stop: the demo has ended",
        ExitCode.BUG: "a difference was found, or a step failed",
        ExitCode.USAGE: "Java or PySpark is missing, or the folder has other files",
        ExitCode.UNREACHABLE: "the jars could not be downloaded, or a server does not start or end",
    },
    environment={
        "RECONCILER_CACHE": "the folder for downloaded jars and for the demo (default: in XDG_CACHE_HOME)",
        "JAVA_HOME": "the Java installation",
    },
    see_also=("docs/guide.md",),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("stop",), help="end a demo, also one that was kept or killed")
    parser.add_argument("--keep", action="store_true", help="keep the clusters and the mirror running")
    parser.add_argument("--source", action="store_true", help="with stop: end only the source and the mirror")
    parser.add_argument(
        "--folder", metavar="DIR", type=Path, help="a new or empty working folder (default: demo, in the cache)"
    )


def run(options: argparse.Namespace) -> ExitCode:
    from reconciler.artifacts import cache_directory

    folder = (options.folder or cache_directory() / "demo").resolve()
    is_stop = options.action == "stop"
    if (options.keep and is_stop) or (options.source and not is_stop):
        raise ConfigError("--keep is for a demo that starts, --source for `reconciler demo stop`.")
    return _stop(folder, options) if is_stop else _play(folder, options)


def _play(folder: Path, options: argparse.Namespace) -> ExitCode:
    from reconciler.demo import stage
    from reconciler.demo.scenario import Demo

    stage.begin(folder)
    is_kept = False
    try:
        demo = Demo(stage.Stage(folder, _say, _reconciler, keep=options.keep))
        result = demo.play()
        _report(result)
        if options.keep:
            demo.start_again()
            _look_around(demo, options)
            is_kept = True
        return ExitCode.OK if result.is_clean else ExitCode.BUG
    finally:
        if not is_kept:
            stage.end(folder)
        if not options.keep:
            stage.delete(folder)


def _stop(folder: Path, options: argparse.Namespace) -> ExitCode:
    from reconciler.demo import stage

    if options.source:
        found, what = stage.end(folder, "a", "mirror"), "Cluster a and the mirror"
        _say(f"{what} are killed; b runs." if found else f"{what} were not running.")
    elif stage.delete(folder):
        _say(f"The demo has ended, and {folder} is deleted.")
    else:
        _say(f"There is no demo in {folder}.")
    return ExitCode.OK


def _say(text: str) -> None:
    say(*text.split("\n"))
    sys.stdout.flush()


def _reconciler(arguments: Sequence[str]) -> int:
    from reconciler.cli.main import main

    return main(list(arguments))


def _report(result: DemoResult) -> None:
    found, group = result.by_ids, result.restarted
    anchored, traces = group.anchored, group.unprepared
    lost, doubled = len(found.lost), len(found.doubled)
    _table(
        "11 the proof, by ids, over both moves\n"
        f"   produced {found.produced:,} · processed {found.seen:,} · lost {lost} · doubled {doubled}",
        ("read again", "skipped"),
        {
            "reconciler": (found.seen - found.produced, lost),
            "the stored offsets as they were": result.others.unchanged,
            "MirrorMaker's synced offset of a group that lags": result.others.lagging,
            "MirrorMaker, for this job: it commits nothing": result.others.not_committed,
        },
    )
    counts = result.counts
    _say(
        f"\n12 the stateful query's counts: {counts.equal} of {counts.counts} equal a plain count of what was produced"
        f"\n   clicks lost {counts.too_few} · too many {counts.too_many}"
    )
    _table(
        f"13 a group whose mirror was killed and restarted: {group.sent:,} payments are on b, "
        f"{group.sent_again:,} of them twice",
        ("read again", "skipped", "plan said"),
        {
            "reconciler, with the anchors of track": (*anchored.start, f"≤ {anchored.at_most:,}"),
            "MirrorMaker's synced offset": (*group.synced, "-"),
            "reconciler, no anchors: by the mirror's topics": (*traces.start, f"≤ {traces.at_most:,}"),
        },
    )
    _say(f"\n   {result.seconds:.0f} seconds.")
    if not result.is_clean:
        differing = f"lost {found.lost[:5]}, doubled {found.doubled[:5]}"
        say(f"NOT CLEAN: {differing}, {group}, {counts}", stream=sys.stderr)


def _table(title: str, heads: Sequence[str], rows: Mapping[str, Sequence[int | str]]) -> None:
    def line(name: str, cells: Sequence[int | str]) -> str:
        return f"   {name:<48}" + "".join(f"{cell:>14,}" if isinstance(cell, int) else f"{cell:>14}" for cell in cells)

    _say("\n".join(["", title, "", line("", heads), *(line(name, cells) for name, cells in rows.items())]))


def _look_around(demo: Demo, options: argparse.Namespace) -> None:
    folder = demo.stage.folder
    own = () if options.folder is None else ("--folder", folder)
    _say(
        f"""
Running now, with their data and logs in {folder}:
   a, the source       {demo.a.bootstrap}   {demo.a.log}
   b, the destination  {demo.b.bootstrap}   {demo.b.log}
   the mirror                            {demo.mirror.log}
To look at what was done, and to continue by hand (docs/guide.md, part 3):
   {command("reconciler", "show", demo.stage.plan("clicks"))}
   {command("reconciler", "plan", "-c", demo.stage.config)}
To lose the source and the mirror: {command("reconciler", "demo", "stop", "--source", *own)}
To end all of it, and delete its data: {command("reconciler", "demo", "stop", *own)}"""
    )
