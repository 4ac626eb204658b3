"""Reports what MirrorMaker 2 has recorded of itself at the destination. For each partition: the last source offset,
the age of the newest record, offset syncs, gaps, and records that were sent again. For each group with checkpoints: how
far it is behind. Then: the one property of MirrorMaker to set first. It writes nothing, and needs nothing from the
source.
"""

from __future__ import annotations

import argparse

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import Shown, line, show, show_json, stack, wrap
from reconciler.cli.terminal.table import Cell, count_cell, partition_cell, render
from reconciler.clock import stamp
from reconciler.config.file import Config
from reconciler.core.errors import ExitCode
from reconciler.core.text import counted
from reconciler.failover.inputs import refuse_wrong
from reconciler.failover.mirrored import MirrorReport, report
from reconciler.kafka.mirror.account import GroupAccount, Setting

FORMAT = "reconciler.mirror/1"
EXAMPLE = "reconciler mirror -c reconciler.toml"
HELP = Help(
    __doc__,
    [
        ("all topics of the configuration", EXAMPLE),
        ("one job's, as JSON", f"{EXAMPLE} --job clicks --format json"),
    ],
    {
        ExitCode.OK: "the mirror recorded enough here for every partition; the property named may still give more",
        ExitCode.USAGE: "",
        ExitCode.NEEDS_PERSON: "for a partition it recorded nothing here",
        ExitCode.CHANGED: "a topic was recreated during the check",
        ExitCode.UNREACHABLE: "a cluster or store could not be reached, or refused",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("docs/explanation/mirror-offsets.md", "docs/how-to/no-anchors.md", "reconciler plan"),
)
HEADS = ("PARTITION", "SOURCE OFFSET", "BY", "AGE", "SYNCS", "APART", "AT MOST", "MISSING", "AGAIN")
GROUP_HEADS = ("GROUP", "TOPIC", "CHECKPOINT", "BEHIND")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    arguments.add_to(parser)
    arguments.add_jobs(parser)
    arguments.add_format(parser)


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_located(options)
    jobs = config.chosen(*options.job)
    refuse_wrong(config, jobs)
    with context.outside(config) as outside:
        found = report(config, jobs, outside)
    if options.format == "json":
        show_json(to_json(found, config))
    else:
        show(_text(found))
    return found.exit_code


# ---------------------------------------------------------------- JSON


def to_json(found: MirrorReport, config: Config) -> dict[str, object]:
    """The report as JSON values, format ``reconciler.mirror/1``. Unknown values are null."""
    return {
        "format": FORMAT,
        "created_at": stamp(found.made_ms),
        "source_alias": config.topics.alias,
        "cluster_id": found.cluster_id,
        "heartbeat_at": _time(found.heartbeat_ms),
        "partitions": [
            {
                "source_topic": each.source.topic,
                "topic": each.destination.topic,
                "partition": each.destination.partition,
                "source_offset": each.sent.offset if each.sent else None,
                "source_offset_by": each.sent.by if each.sent else None,
                "newest_record_at": _time(each.newest_ms),
                "syncs": each.syncs,
                "sync_distance": {"median": each.median_distance, "largest": each.largest_distance},
                "missing_at_least": each.missing,
                "sent_again_at_least": each.again,
            }
            for each in found.partitions
        ],
        "groups": [_group_json(each) for each in found.groups],
        "settings": [_setting_json(each) for each in found.settings],
        "set_first": _setting_json(found.first) if found.first else None,
        "notes": list(found.notes),
        "not_judged": [{"name": name, "cause": error.message} for name, error in found.failed.items()],
        "exit_code": int(found.exit_code),
    }


def _time(epoch_ms: int | None) -> str | None:
    return None if epoch_ms is None else stamp(epoch_ms)


def _group_json(group: GroupAccount) -> dict[str, object]:
    return {
        "group": group.group,
        "topic": group.partition.topic,
        "partition": group.partition.partition,
        "checkpoint": {"source_offset": group.offset, "offset": group.place, "written_at": _time(group.written_ms)},
        "behind_records": group.behind,
    }


def _setting_json(each: Setting) -> dict[str, object]:
    return {
        "property": each.name,
        "value": each.wanted,
        "seen": each.seen,
        "gives": each.gives,
        "is_as_wanted": each.is_as_wanted,
    }


# ---------------------------------------------------------------- text


def _text(found: MirrorReport) -> Shown:
    parts = [line(f"mirror · {counted(len(found.partitions), 'partition')} · {_heartbeat(found)}")]
    parts.append(render(HEADS, _partitions(found), right=frozenset({1, 3, 4, 5, 6, 7, 8})))
    if found.groups:
        parts += [line(""), render(GROUP_HEADS, _groups(found), right=frozenset({2, 3}))]
    return stack(*parts, wrap("", *_sentences(found)))


def _partitions(found: MirrorReport) -> list[list[Cell]]:
    lacking = found.without_evidence
    return [
        [
            partition_cell(each.destination, "bad" if each in lacking else None),
            count_cell(each.sent.offset if each.sent else None),
            Cell(each.sent.by if each.sent else "-"),
            _age(each.newest_ms, found.made_ms),
            count_cell(each.syncs, None if each.syncs else "warn"),
            count_cell(each.median_distance),
            count_cell(each.largest_distance),
            count_cell(each.missing),
            count_cell(each.again, "warn" if each.again else None),
        ]
        for each in found.partitions
    ]


def _groups(found: MirrorReport) -> list[list[Cell]]:
    """A row for each group and topic: its oldest checkpoint, and sums."""
    topics: dict[tuple[str, str], list[GroupAccount]] = {}
    for each in found.groups:
        topics.setdefault((each.group, each.partition.topic), []).append(each)
    rows = []
    for (group, topic), parts in topics.items():
        written = [part.written_ms for part in parts if part.written_ms is not None]
        rows.append(
            [
                Cell(group),
                Cell(topic),
                _age(min(written, default=None), found.made_ms),
                count_cell(sum(part.behind for part in parts)),
            ]
        )
    return rows


def _age(epoch_ms: int | None, now_ms: int) -> Cell:
    return Cell("-" if epoch_ms is None else f"{max(0, now_ms - epoch_ms) // 1000:,} s")


def _heartbeat(found: MirrorReport) -> str:
    if found.heartbeat_ms is None:
        return "no heartbeat"
    return f"newest heartbeat sent {max(0, found.made_ms - found.heartbeat_ms) // 1000:,} s ago"


def _sentences(found: MirrorReport) -> list[str]:
    sentences = [f"{note[0].upper()}{note[1:]}." for note in found.notes]
    sentences += [f'Job "{name}" was not judged: {error.message}' for name, error in found.failed.items()]
    if found.without_evidence:
        count = counted(len(found.without_evidence), "partition")
        sentences.append(f"The mirror recorded nothing here for {count}: a job without anchors needs a decision there.")
    setting = found.first
    if setting is None:
        sentences.append("MirrorMaker is set as a failover of unprepared jobs needs it.")
    else:
        change = f"{setting.name} = {setting.wanted} ({setting.seen} now)"
        first = f"Set first, in MirrorMaker's properties: {change}."
        if setting.is_default:
            first = f"Check that MirrorMaker's connector runs, and has its default {change}."
        sentences += [first, f"What it gives: {setting.gives}."]
    return sentences
