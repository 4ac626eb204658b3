"""``reconciler compact``: merge the small files of range batches' output; a reader sees the old or the merged ones."""

from __future__ import annotations

import argparse

from reconciler.cli.terminal.help import Help
from reconciler.core.errors import ConfigError, ExitCode

EXAMPLE = "reconciler compact /srv/clicks --target-mb 256 --grace-hours 24"
HELP = Help(
    """
    Merges, on Spark, the small files that range batches leave in their output. Readers by the catalogue see the old
    files or the merged ones; files that were merged stay for a while, for readers that were told of them.
    """,
    [("files of about 256 MB, the old ones kept for a day", EXAMPLE)],
    {
        ExitCode.OK: "merged, or there was nothing to merge",
        ExitCode.USAGE: "",
        ExitCode.CHANGED: "another compaction was first",
        ExitCode.UNREACHABLE: "the output is not reachable, or the catalogue is not understood",
    },
    see_also=("docs/how-to/range-batches.md", "docs/reference/range-batches.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the output's path, as Spark has it")
    parser.add_argument("--catalogue", metavar="URL", help="where its catalogue is, if not in PATH/_batches")
    parser.add_argument(
        "--target-mb", type=int, default=256, metavar="N", help="merge files below this size, to about it"
    )
    parser.add_argument(
        "--grace-hours",
        type=float,
        default=24,
        metavar="H",
        help="how long files that were merged stay, for readers that were told of them (default: 24)",
    )


def run(options: argparse.Namespace) -> int:
    if options.target_mb < 1 or options.grace_hours < 0:
        raise ConfigError("--target-mb is at least 1, and --grace-hours at least 0.", hint=f"For example: {EXAMPLE}")
    from reconciler.spark.ranges.compaction import compact
    from reconciler.spark.session import own_session

    with own_session("reconciler compact", {}) as spark:
        done = compact(
            spark,
            options.path,
            catalogue=options.catalogue,
            target_bytes=options.target_mb * 2**20,
            grace_ms=round(options.grace_hours * 3_600_000),
        )
    print(f"{done.before:,} files became {done.after:,}; {done.removed:,} old ones were removed.")
    return int(ExitCode.OK)
