"""``reconciler demo``: run a whole failover on this machine, with real clusters."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli.terminal.help import Help
from reconciler.cli.terminal.output import say
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.core.visible import command
from reconciler.fileio import making

if TYPE_CHECKING:
    from reconciler.demo.proof import Alternative
    from reconciler.demo.restarted import Restarted
    from reconciler.demo.scenario import DemoResult
    from reconciler.demo.stateful import StateProof

EXAMPLE = "reconciler demo"
DYING_S = 10.0
"""How long killed processes are waited for at most: until then they may still create a file."""
HELP = Help(
    """
    Runs a whole failover on this machine: two Kafka clusters, MirrorMaker 2 and a PySpark job of two queries. One query
    is counted by ids, the other is stateful and compared with a plain count. Needs Java 17. The first run downloads
    Kafka and Spark's Kafka connector; later runs take them from a cache.
    """,
    [
        ("run it, and clean up", EXAMPLE),
        ("keep the clusters running, to explore", "reconciler demo --keep"),
    ],
    {
        ExitCode.OK: "nothing lost, nothing doubled, all counts equal",
        ExitCode.BUG: "a difference was found, or a step failed",
        ExitCode.USAGE: "Java or PySpark is missing, or the folder is not empty",
        ExitCode.UNREACHABLE: "the jars could not be downloaded",
    },
    environment={
        "RECONCILER_CACHE": "the folder for downloaded jars (default: reconciler in XDG_CACHE_HOME)",
        "JAVA_HOME": "the Java installation",
    },
    see_also=("docs/tutorial.md",),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", action="store_true", help="keep the clusters running, and print how to explore")
    parser.add_argument(
        "--folder", metavar="DIR", type=Path, help="a new or empty working folder (default: a temporary one)"
    )


def run(options: argparse.Namespace) -> ExitCode:
    from reconciler.demo.scenario import play
    from reconciler.demo.stage import Stage
    from reconciler.lab.processes import kill_all

    folder = options.folder or Path(tempfile.mkdtemp(prefix="reconciler-demo-"))
    with making(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):  # a cluster would start with an earlier demo's data, and never answer
            raise ConfigError(f"The folder {folder} is not empty.", hint="Name a new or an empty one for the demo.")
    try:
        result = play(Stage(folder.absolute(), _say, _reconciler, detached=options.keep))
        _report(result)
        if options.keep:
            _look_around(folder, result.destination, result.destination_pid)
        return ExitCode.OK if result.is_clean else ExitCode.BUG
    finally:
        kill_all()  # an interrupt may have come while a process was being started
        if not options.keep and options.folder is None:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove the folder of processes that have been killed, again and again while the last of them still end."""
    until = time.monotonic() + DYING_S
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if time.monotonic() > until:
            return
        time.sleep(0.05)


def _say(text: str) -> None:
    say(*text.split("\n"))
    sys.stdout.flush()


def _reconciler(arguments: Sequence[str]) -> int:
    from reconciler.cli.main import main

    return main(list(arguments))


def _report(result: DemoResult) -> None:
    found = result.by_ids
    _say(
        f"""
11 the proof, by ids, over both runs of the job
   produced {found.produced:,} · processed {found.seen:,} · lost {len(found.lost)} · doubled {len(found.doubled)}

                                                    read again    skipped
   {"reconciler":<48} {found.seen - found.produced:>11,} {len(found.lost):>10,}
{_ways(result)}"""
    )
    _report_state(result.state)
    _report_restarted(result.restarted)
    _say(f"\n   {result.seconds:.0f} seconds.")
    if not found.is_clean:
        say(f"NOT CLEAN: lost {found.lost[:5]}, doubled {found.doubled[:5]}", stream=sys.stderr)
    if not result.restarted.is_clean:
        say(f"NOT CLEAN: {result.restarted}", stream=sys.stderr)
    if not result.state.cloned.is_equal:
        say(f"NOT EQUAL: {result.state.cloned}", stream=sys.stderr)


def _ways(result: DemoResult) -> str:
    """The job at its stored offsets, and MirrorMaker's synced offsets at their best, each with its condition."""
    from reconciler.demo.groups import FLOW_PER_SECOND

    synced = result.synced
    ways = {
        "the stored offsets as they were": result.unchanged,
        "MirrorMaker's synced offsets, all intervals one second:": None,
        f"  a group at the head of {FLOW_PER_SECOND} records a second": synced.head,
        f"  a group that was {synced.behind:,} records behind": synced.lagging,
        "  this job, which commits nothing to Kafka": result.not_committed,
    }
    return "\n".join(
        f"   {name}" if way is None else f"   {name:<48} {way.again:>11,} {way.skipped:>10,}"
        for name, way in ways.items()
    )


def _report_state(proof: StateProof) -> None:
    ways = {
        "reconciler: the checkpoint's copy": proof.cloned,
        "the old checkpoint, topic renamed in it": proof.renamed,
        "a new checkpoint, the plan's offsets": proof.new_checkpoint,
    }
    rows = "\n".join(
        f"   {name:<40} {each.equal:>3} of {each.counts:<3} {each.too_few:>12,} {each.too_many:>12,}"
        for name, each in ways.items()
    )
    _say(
        f"""
12 the stateful query's counts, against a plain count of what was produced

                                            counts equal  clicks lost     too many
{rows}"""
    )


def _report_restarted(found: Restarted) -> None:
    def row(name: str, start: Alternative, verdict: str = "") -> str:
        return f"   {name:<50} {start.again:>9,} {start.skipped:>10,}  {verdict}".rstrip()

    _say(
        f"""
13 a group whose mirror was killed and restarted: {found.sent:,} payments are on b, {found.sent_again:,} of them twice

                                                    read again    skipped
{row("reconciler, with the anchors of track", found.anchored.start, found.anchored.verdict.value)}
{row("MirrorMaker's synced offset", found.synced)}
{row("reconciler, no anchors: by the mirror's own topics", found.unprepared.start, found.unprepared.verdict.value)}"""
    )
    if not found.synced.skipped:
        _say("   (In this run MirrorMaker's offset skips nothing: what it passes was sent again behind it.)")


def _look_around(folder: Path, bootstrap: str, pid: int) -> None:
    config, plan = folder / "reconciler.toml", folder / "clicks.plan.json"
    _say(
        f"""
Left running: the destination at {bootstrap}; everything is in {folder}.
   {command("reconciler", "check", "-c", config)}
   {command("reconciler", "show", plan)}
   {command("reconciler", "show", plan, "--starting-offsets")}
To end it: kill {pid}; {command("rm", "-r", folder)}"""
    )
