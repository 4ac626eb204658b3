"""Where a job's start comes from: the hook's file, or the hook's work in this process; and what a start lacks.

The hook contacts no cluster for the start of a job that was never moved, so such a start has only the offsets that the
job has stored. The job needs its cluster anyway: there it looks up the other partitions of its topics, and sees whether
the stored offsets come from this cluster.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.config.addresses import without_secrets
from reconciler.config.avro import Properties
from reconciler.config.file import any_home, load_config
from reconciler.config.identity import settings_of
from reconciler.core.anchors import real_topic_id
from reconciler.core.errors import Changed, ConfigError, NeedsPerson, ReconcilerError
from reconciler.core.question import StartAt, StartPlace
from reconciler.fileio import read_regular, why
from reconciler.kafka.requests import topics_of
from reconciler.near import MOST_NAMES, near_topics
from reconciler.plan.start import EARLIEST, LATEST
from reconciler.ports import ClusterInfo, LogReader, TopicPartition
from reconciler.state.start import DIGEST_VARIABLE, START_VARIABLE, Start, digest_of, load

if TYPE_CHECKING:
    from reconciler.jobs.hook.starting import Waiting
    from reconciler.plan.document import Plan

CLUSTER_VARIABLE = "RECONCILER_BOOTSTRAP_SERVERS"
"""The clusters at which a job may start, separated by white space. They vouch for a file without a digest: no file
alone decides where the job sends its login."""
TIMEOUT_S = 10.0
MOST_SENTENCES = 3
"""In the error of a job that must not start. Its plan has all."""
AGAIN = "Start the job by its hook, which finds where it lives now: reconciler hook"

log = logging.getLogger(__name__)


def handed_over(env: Mapping[str, str]) -> Start:
    """The start in the file that the hook's variables name. Raises ConfigError, and Changed for an altered file."""
    path, digest = env.get(START_VARIABLE, ""), env.get(DIGEST_VARIABLE, "")
    clusters = env.get(CLUSTER_VARIABLE, "").split()
    if not path or not (digest or clusters):
        raise ConfigError(
            f"{START_VARIABLE if not path else DIGEST_VARIABLE} is not set in this process's environment.",
            hint="Start the job by `reconciler hook -c FILE -- COMMAND`. Where the driver runs on another machine, "
            f"ship the start's file to it, and set {START_VARIABLE} and {DIGEST_VARIABLE} there. Where nothing can run "
            'a command before the job, let it do the hook\'s work: job("reconciler.toml", "NAME").',
        )
    try:
        content = read_regular(Path(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{START_VARIABLE} names {path}, which cannot be read: {why(error)}.", hint=AGAIN) from error
    if digest and digest_of(content) != digest:
        raise Changed(f"The start {path} is not what the hook wrote: its SHA-256 is not {digest}.", hint=AGAIN)
    found = load(content.decode(errors="replace"), path)
    if clusters and found.bootstrap_servers not in clusters:
        raise ConfigError(
            f"The job would start at {found.bootstrap_servers}, and {CLUSTER_VARIABLE} names {', '.join(clusters)}.",
            hint="Take the file of this cluster, or correct the variable: names must read as in the configuration.",
        )
    return found


def logins(start: Start, environ: Mapping[str, str]) -> tuple[str, dict[str, str], Properties]:
    """The state store's address with its login, librdkafka properties for the start's cluster, and the registry's.

    A start has no secrets: they come from the configuration that it names. Raises ConfigError for one with faults.
    """
    if start.config is None:
        return start.store, {}, ()
    if not os.path.exists(start.config):
        log.warning("The configuration %s is not on this machine: its logins are not used.", start.config)
        return start.store, {}, ()
    config = load_config(Path(start.config), environ, any_home)
    cluster = config.clusters.get(start.cluster)
    client = {} if cluster is None else dict(cluster.client)
    client.pop("bootstrap.servers", None)  # the start has them
    is_same = config.state is not None and without_secrets(config.state) == start.store
    registry = next((settings_of(each.identity).registry for each in config.jobs if each.name == start.job), ())
    return config.state if is_same and config.state else start.store, client, registry


# ---------------------------------------------------------------- the hook's work, in this process


def start_here(
    config_file: str | os.PathLike[str],
    name: str,
    environ: Mapping[str, str],
    *,
    wait_s: float,
    plans: str | os.PathLike[str] | None,
) -> dict[str, str]:
    """Do a hook's work for the job, and return the variables that its command would find.

    It writes the hook's files, too. Raises as ``begin`` does.
    """
    # A job that a hook started loads none of these.
    from reconciler import written
    from reconciler.failover import inputs
    from reconciler.jobs.hook.figures import record_run
    from reconciler.jobs.hook.starting import Request, begin, refuse_wait
    from reconciler.plan.start import stop_sentences

    written.forget()
    config = load_config(Path(config_file), environ, inputs.homes)
    (job,) = config.chosen(name)
    refuse_wait("wait", wait_s)
    request = Request("job()", wait_s=wait_s, plans=None if plans is None else Path(plans))
    stops: list[str] = []

    def note_stops(plan: Plan) -> None:
        stops.extend(stop_sentences(plan.job().partitions, config.policy.start, MOST_SENTENCES))

    with record_run(config.metrics, job) as figures:
        try:
            return begin(config, job, request, figures, outside=inputs.outside, show=note_stops, tell=_log_waiting)
        except NeedsPerson as error:
            if not stops:
                raise
            raise NeedsPerson(" ".join([error.message, *stops]), hint=error.hint) from error


def _log_waiting(now: Waiting) -> None:
    if now.behind:
        words = "waiting for the mirror: %d of %d partitions are behind; %.0f s left"
        log.info(words, now.behind, now.partitions, now.left_s)


# ---------------------------------------------------------------- the partitions that a start lacks


def complete(start: Start, client: Mapping[str, str]) -> Start:
    """The start with an offset for every partition that exists. ``client``: librdkafka properties, with the servers.

    Raises ConfigError for a topic that does not exist; NeedsPerson if the stored offsets are of another cluster or of a
    deleted topic; Unreachable or Refused.
    """
    from reconciler.kafka.reader import KafkaLogReader

    if start.new is None:
        return start
    with closing(KafkaLogReader(client, timeout_s=TIMEOUT_S, who="job's")) as reader:
        there = reader.describe(start.topics)
        whole = without_later(start, there)
        if absent := [topic for topic in whole.topics if topic not in there.topics]:
            raise ConfigError(
                f"The cluster {start.cluster} at {start.bootstrap_servers} has no topic {', '.join(absent)}.",
                hint=f"{_near(client, absent)}Correct the name, or create the topic first: Spark cannot subscribe to "
                "one that does not exist.",
            )
        return complete_from(whole, there, reader, start.new)


def without_later(start: Start, there: ClusterInfo) -> Start:
    """The start without the topics of another origin that no mirror has made yet."""
    numbered = {place.topic for place in start.offsets}
    later = {
        topic
        for topic, stream in start.topics.items()
        if topic not in there.topics and stream.origin != start.cluster and topic not in numbered
    }
    for topic in sorted(later):
        log.warning("%s does not exist on %s yet: a start after it does will read it.", topic, start.cluster)
    return replace(start, topics={topic: stream for topic, stream in start.topics.items() if topic not in later})


def complete_from(start: Start, there: ClusterInfo, reader: LogReader, new: StartAt) -> Start:
    """As ``complete``, if every topic exists."""
    _refuse_another(start, there)
    added = [place for topic in start.topics for place in there.topics[topic].places if place not in start.offsets]
    return replace(start, offsets={**start.offsets, **dict(zip(added, _new(new, reader, added), strict=True))})


def _refuse_another(start: Start, there: ClusterInfo) -> None:
    """Raise NeedsPerson if the stored offsets are of another cluster, or of a deleted topic."""
    if start.cluster_id not in (None, there.cluster_id):
        raise NeedsPerson(
            f"The cluster at {start.bootstrap_servers} is {there.cluster_id}, and the stored offsets of job "
            f"{start.job} are of cluster {start.cluster_id}.",
            hint="Correct that cluster's address under [clusters]. If it is lost, or was replaced, move the job: "
            "reconciler move --to CLUSTER.",
        )
    for topic in start.topics:
        now = real_topic_id(there.topic_id(topic))
        if now is not None and (older := [each for each in start.topic_ids.get(topic, ()) if each != now]):
            raise NeedsPerson(
                f"The topic {topic} was deleted and created again on {start.cluster}: its id is {now}, and the stored "
                f"offsets of job {start.job} are of {', '.join(older)}.",
                hint="To read the new topic from its start, delete these offsets from the store and start the job once "
                "with `hook --accept new`. Or store the offsets to start from.",
            )


def _new(new: StartAt, reader: LogReader, partitions: list[TopicPartition]) -> list[int]:
    """The first offsets of partitions without a stored offset."""
    if new.place is not StartPlace.TIME or not partitions:
        return [LATEST if new.place is StartPlace.LATEST else EARLIEST] * len(partitions)
    assert new.timestamp_ms is not None
    # Without such a record, the partition's end before the lookup: at LATEST, Spark would skip records that are written
    # until the query starts.
    ends = reader.log_ends(partitions)
    found = reader.offsets_for_times([(each, new.timestamp_ms) for each in partitions])
    return [ends[each] if offset is None else offset for each, offset in zip(partitions, found, strict=True)]


def _near(client: Mapping[str, str], absent: Sequence[str]) -> str:
    """A sentence about topics with similar names; empty if there are none, or they cannot be listed."""
    try:
        there = topics_of(client, timeout_s=TIMEOUT_S)
    except ReconcilerError:
        return ""
    near = sorted({each for name in absent[:MOST_NAMES] for each in near_topics(name, name, there)})[:MOST_NAMES]
    return f"It has {', '.join(near)}. " if near else ""
