"""``reconciler compact``: merge small files of range batches; readers see either the old files or the merged ones."""

from __future__ import annotations

import argparse

from reconciler.cli.terminal.help import Help
from reconciler.cli.terminal.output import say
from reconciler.core.errors import ConfigError, ExitCode

LONGEST_HOURS = 87_600
EXAMPLE = "reconciler compact /srv/clicks --target-mb 256 --grace-hours 24"
HELP = Help(
    """
    Merges, on Spark, the small files that range batches leave in their output. Readers that use the catalogue see
    either the old files or the merged ones. The old files stay for a while, for readers that have already listed them.
    """,
    [("files of about 256 MB, the old ones kept for a day", EXAMPLE)],
    {
        ExitCode.OK: "merged, or there was nothing to merge",
        ExitCode.USAGE: "",
        ExitCode.CHANGED: "another compaction finished first",
        ExitCode.UNREACHABLE: "the output is not reachable, or the catalogue has an unknown format",
    },
    see_also=("docs/how-to/range-batches.md", "docs/reference/range-batches.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="the output's path, as Spark reads it")
    parser.add_argument("--catalogue", metavar="URL", help="the catalogue's location (default: PATH/_batches)")
    parser.add_argument(
        "--target-mb",
        type=int,
        default=256,
        metavar="N",
        help="merge smaller files into files of about this size (default: 256)",
    )
    parser.add_argument(
        "--grace-hours",
        type=float,
        default=24,
        metavar="H",
        help="how long the old files stay, for readers that have already listed them (default: 24)",
    )


def run(options: argparse.Namespace) -> int:
    if options.target_mb < 1 or not 0 <= options.grace_hours <= LONGEST_HOURS:
        raise ConfigError(
            f"--target-mb is at least 1, and --grace-hours from 0 to {LONGEST_HOURS:,} (ten years).",
            hint=f"For example: {EXAMPLE}",
        )
    from reconciler.spark.ranges.compaction import compact
    from reconciler.spark.session import own_session, refused

    hint = "Check that Spark reaches the output, that all files that count are there, and that there is space."
    failure = refused(f"Spark could not merge the files of {options.path}", hint)
    with own_session("reconciler compact", {}) as spark, failure:
        done = compact(
            spark,
            options.path,
            catalogue=options.catalogue,
            target_bytes=options.target_mb * 2**20,
            grace_ms=round(options.grace_hours * 3_600_000),
        )
    say(f"{done.before:,} files became {done.after:,}; {done.removed:,} old ones were removed.")
    return int(ExitCode.OK)
