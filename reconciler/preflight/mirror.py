"""The mirror's own topics at the destination, as one line of ``config check``; ``reconciler mirror`` has the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from reconciler.config.file import Config
from reconciler.core.errors import ReconcilerError
from reconciler.failover.unanchored import own_topics
from reconciler.mirror.account import LOCATION
from reconciler.mirror.reading import OwnTopics, Wanted, read_pairs
from reconciler.ports import LogReader, TopicPartition
from reconciler.preflight.results import TrialResult, failed, ok, warn

MIRROR = "mirror"


def mirror(config: Config, reader: LogReader) -> Iterator[TrialResult]:
    """Whether offset syncs, checkpoints and heartbeats are here. None is needed for jobs that have anchors."""
    own = own_topics(config)
    if not own.checkpoints:
        yield ok(MIRROR, "MirrorMaker's own topics are not known without [source] alias or [mirror]; none is read")
        return
    try:
        kinds = ("offset syncs", "checkpoints", "heartbeats")
        names = (own.offset_syncs, own.checkpoints, own.heartbeats)
        here = {kind: _holds(reader, named) for kind, named in zip(kinds, names, strict=True)}
    except ReconcilerError as error:
        yield failed(MIRROR, error, only_warn=True)
        return
    yield from _misnamed(config, own, reader)
    there = [kind for kind in kinds if here[kind]]
    result = f"{' and '.join(there)} are at the destination" if there else "MirrorMaker left nothing at the destination"
    if here["offset syncs"]:
        yield ok(MIRROR, f"{result}; what they give: reconciler mirror")
        return
    lacks = ": stored offsets without anchors cannot be placed"
    if there:
        lacks = ", offset syncs are not: stored offsets without anchors can be placed by checkpoints alone, if at all"
    yield warn(
        MIRROR,
        f"{result}{lacks}.",
        f"Set {LOCATION} = target in MirrorMaker's properties. What it gives: reconciler mirror.",
    )


def _misnamed(config: Config, own: OwnTopics, reader: LogReader) -> Iterator[TrialResult]:
    """Whether the checkpoints name the jobs' topics as the configuration does."""
    names = {(topic, config.topics.destination_of(topic)) for job in config.jobs for topic in job.topics}
    wanted = [Wanted(TopicPartition(one, 0), TopicPartition(other, 0), None) for one, other in sorted(names)]
    try:
        misnamed = read_pairs(reader, replace(own, offset_syncs=()), wanted).misnamed
    except ReconcilerError as error:
        yield failed(MIRROR, error, only_warn=True)
        return
    if misnamed:
        what, _, next_step = misnamed.partition(": ")
        yield warn(MIRROR, f"{what}.", f"{next_step[0].upper()}{next_step[1:]}.")


def _holds(reader: LogReader, names: Sequence[str]) -> bool:
    """Whether the first of these topics that exists has records."""
    described = reader.describe(names).topics
    info = next((described[name] for name in names if name in described), None)
    places = info.places if info is not None else []
    if not places:
        return False
    starts, ends = reader.log_starts(places), reader.log_ends(places)
    return any(ends[place] > starts[place] for place in places)
