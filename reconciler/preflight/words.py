"""A configuration in words, for a reader who did not write it. Contacts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.config.addresses import without_secrets
from reconciler.config.file import Cluster, Config, Job, TopicNames
from reconciler.config.settings import TrustSettings
from reconciler.config.table import UNITS
from reconciler.core.policies import Behind, NoAnchor, StartPlace, TopicPolicy
from reconciler.formats.decimal_text import counted
from reconciler.identity import settings_of
from reconciler.ports import Capabilities
from reconciler.stores.registry import traits

MOST_TOPICS = 12
_PLACES = {
    StartPlace.EARLIEST: "at the earliest record",
    StartPlace.LATEST: "at the end",
    StartPlace.TIME: "at the time given",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, and sentences under it."""

    title: str
    lines: tuple[str, ...]


def explained(config: Config, jobs: Sequence[Job], abilities: Mapping[str, Capabilities]) -> list[Section]:
    """The whole configuration. ``abilities``: what each job's store can do by itself, by the job's name."""
    sections = [
        Section("clusters", tuple(_clusters(config))),
        Section("topics", tuple(_topics(config, jobs))),
    ]
    sections += [Section(f"job {job.name}", tuple(_job(config, job, abilities.get(job.name)))) for job in jobs]
    sections += [
        Section("search", tuple(_search(config))),
        Section("policy", tuple(_policy(config))),
        Section("commands", tuple(_commands(config, jobs, abilities))),
    ]
    return sections


# ---------------------------------------------------------------- clusters and topics


def _clusters(config: Config) -> Iterator[str]:
    yield f"The destination, where jobs are to go on, is the cluster at {_reached(config.destination)}."
    name = f'The source, "{config.topics.alias}",' if config.topics.alias else "The source"
    if config.source is None:
        yield f"{name} has no address: hook cannot start jobs there, and track and audit would use one."
    else:
        yield f"{name} is the cluster at {_reached(config.source)}. Jobs that start there, track and audit use it."


def _reached(cluster: Cluster) -> str:
    client = cluster.client
    protocol = client.get("security.protocol", "PLAINTEXT").upper()
    login = ""
    if protocol.startswith("SASL_"):
        mechanism = client.get("sasl.mechanism") or client.get("sasl.mechanisms") or "GSSAPI"
        user = f" as {client['sasl.username']}" if client.get("sasl.username") else ""
        login = f", with a login{user} ({mechanism})"
    elif any(client.get(f"ssl.{name}") for name in ("keystore.location", "certificate.location", "certificate.pem")):
        login = ", with a client certificate"
    tls = "over TLS" if protocol in ("SSL", "SASL_SSL") else "without encryption"
    return f"{cluster.bootstrap_servers}, {tls}{login}"


def _topics(config: Config, jobs: Sequence[Job]) -> Iterator[str]:
    yield _rule(config.topics)
    names = sorted({topic for job in jobs for topic in job.topics})
    for topic in names[:MOST_TOPICS]:
        yield f"{topic} -> {config.topics.destination_of(topic)}"
    if len(names) > MOST_TOPICS:
        yield f"… and {len(names) - MOST_TOPICS:,} more."


def _rule(names: TopicNames) -> str:
    if names.template is not None:
        rule = f'A mirrored topic is named "{names.template.name_of("TOPIC")}" at the destination'
    elif names.policy is TopicPolicy.IDENTITY:
        rule = "A mirrored topic has the same name at the destination (MirrorMaker's identity policy)"
    elif names.policy is TopicPolicy.NAMES and names.alias is None:
        return "A mirrored topic is named at the destination as [topics.names] lists it; other topics are refused."
    else:
        rule = f'A mirrored topic is named "{names.alias}{names.separator}TOPIC" at the destination'
    return f"{rule}, but for those that [topics.names] lists." if names.names else f"{rule}."


# ---------------------------------------------------------------- jobs


def _job(config: Config, job: Job, able: Capabilities | None) -> Iterator[str]:
    topics = ", ".join(job.topics[:MOST_TOPICS]) + (" and more" if len(job.topics) > MOST_TOPICS else "")
    yield f'Reads {topics}. Its offsets are in {without_secrets(job.store)}, under the group "{job.group}".'
    if able is not None:
        yield _store_can(config, job, able)
        yield _number(able)
    yield _identity(job)
    if job.new is not None:
        yield (
            f"The job is called new: it may start although its store has no row of a topic, and starts "
            f"{_PLACES[job.new.place]}."
        )


def _store_can(config: Config, job: Job, able: Capabilities) -> str:
    if traits(job.store).corrected_in_copy:
        correction = "That is a checkpoint, and only read: a correction is made in a copy of it"
    elif traits(job.store).corrected_by_job:
        correction = "Only the job writes to that table: the hook hands it a correction, which it stores itself"
    elif not able.writable:
        correction = "That store is only read"
    elif able.atomic_batches:
        correction = "A correction is written there whole, or not at all"
    else:
        correction = "A correction is written there row by row; if it is cut off, apply finishes it"
    history = "; what was there before stays in its history" if able.keeps_history else ""
    return f"{correction}{history}. {_anchors_kept(config, able)}"


def _number(able: Capabilities) -> str:
    if able.numbers_last:
        return "A stored number is taken for the last one processed: the job goes on at the next."
    return "A stored number is taken for the next offset to read."


def _anchors_kept(config: Config, able: Capabilities) -> str:
    aside = f"track keeps them in {without_secrets(config.anchor_store)}" if config.anchor_store else ""
    if able.translated_by_mirror:
        return "Anchors are in the commits' metadata, where the job puts some there" + (f"; {aside}." if aside else ".")
    if able.keeps_anchors:
        return "Anchors are kept with the offsets."
    if aside:
        return f"It has no room for anchors: {aside}."
    return "It has no room for anchors, and no [anchors] store is configured to keep them."


def _identity(job: Job) -> str:
    identity = settings_of(job.identity)
    time = "the Kafka timestamp"
    if identity.timestamp != "record":
        time = f"{_place(identity.timestamp)} (in {identity.unit}, where it is a number)"
    if identity.source_offset != "none":
        time += f". It carries the source's offset: {_place(identity.source_offset)}"
    if identity.frame != "none":
        time += ". A schema registry's frame in front of a key or a value is left out"
    if identity.id == "none":
        return f"A record is identified by a fingerprint of its key and value, and by its time: {time}."
    rule = "; no two share one" if identity.unique_ids else ""
    if identity.id_order == "increasing":
        rule = "; ids increase within each partition"
    return f"A record is identified by its id: {_place(identity.id)}{rule}. Its time is {time}."


def _place(spec: str) -> str:
    kind, _, rest = spec.partition(":")
    words = {
        "key": "its key",
        "header": f'the header "{rest}"',
        "json": f"{rest} in its JSON value",
        "python": f"what the Python function {rest} returns",
    }
    return words.get(kind, spec)


# ---------------------------------------------------------------- search and policy


def _search(config: Config) -> Iterator[str]:
    search = config.search
    order = (
        f"at most {span(search.max_disorder_ms)} out of order" if search.max_disorder_ms else "in the order of records"
    )
    yield f"Times within a source partition are taken to be {order}."
    yield (
        f"Up to {search.scan_records:,} records of a partition are read in search of its anchor. An unreachable "
        f"cluster is retried for {search.deadline_s:g} s."
    )


def _policy(config: Config) -> Iterator[str]:
    policy = config.policy
    yield (
        f"A partition without a stored offset starts {_PLACES[policy.new.place]}. Where the store has no row of a "
        "whole topic, the job stops unless it is called new."
    )
    may = {
        Behind.START: "may start where that ends",
        Behind.WAIT: "must wait (hook --wait)",
        Behind.STOP: "must not start",
    }[policy.start.behind]
    yield f"Where the mirror has not delivered the last processed record, the job {may}."
    yield (
        f"Where a place is known only roughly, the job may start if {policy.start.max_replay:,} records or fewer are "
        "read again."
    )
    yield {
        NoAnchor.STOP: "A stored offset without an anchor stops the job: nothing is guessed.",
        NoAnchor.MIRROR: "A stored offset without an anchor is located by what MirrorMaker recorded at the "
        "destination; else it stops the job.",
        NoAnchor.ROW_TIME: "A stored offset without an anchor is located by what MirrorMaker recorded at the "
        "destination, else by the time at which its row was written.",
    }[policy.no_anchor]
    yield f"A plan may be applied for {span(policy.plan_expires_ms)}.{_signed(config.trust)}"


def _signed(trust: TrustSettings) -> str:
    if not trust.require_signature:
        return " Plans without a signature may be applied, too." if trust.trusted_keys else ""
    signs = "signs its own" if trust.signing_key else "does not sign its own"
    keys = len(set(trust.trusted_keys))
    return f" It must be signed by {'the trusted key' if keys == 1 else f'one of {keys} trusted keys'}; hook {signs}."


# ---------------------------------------------------------------- commands


def _commands(config: Config, jobs: Sequence[Job], abilities: Mapping[str, Capabilities]) -> Iterator[str]:
    yield _hook(config, jobs)
    yield _track(config, jobs, abilities)
    yield _watch(config)


def _hook(config: Config, jobs: Sequence[Job]) -> str:
    url = config.metrics.pushgateway
    to = [name for name in (config.metrics.textfile, url and without_secrets(url)) if name]
    figures = f" Its figures go to {' and '.join(to)}." if to else ""
    which = f"--job {jobs[0].name}" if len(jobs) == 1 else "--job NAME"
    impossible = "which it cannot: [source] bootstrap_servers is missing"
    source = "with its own stored offsets" if config.source else impossible
    return (
        f"hook {which} would start the job on the side where it is: at the source, {source}; at the destination, it "
        "would check it, write what needs correcting to its store, and start it unless a decision is needed. failover "
        f"start makes it move the job there, by a mark in {config.failover_state}, which every hook must read.{figures}"
    )


def _track(config: Config, jobs: Sequence[Job], abilities: Mapping[str, Capabilities]) -> str:
    tracked = [job.name for job in jobs if job.name in abilities and abilities[job.name].needs_tracking]
    names = ", ".join(tracked[:MOST_TOPICS]) + (" and more" if len(tracked) > MOST_TOPICS else "")
    if not tracked:
        return (
            "track would keep anchors only for rows that have none of their own: every job's store keeps them itself."
        )
    lacks = []
    if config.source is None or not config.source.bootstrap_servers:
        lacks.append("[source] bootstrap_servers")
    if config.anchor_store is None:
        lacks.append("[anchors] store")
    if lacks:
        return f"track could keep anchors for {names}, and lacks {' and '.join(lacks)}."
    return f"track would keep anchors for {names}, reading the source, in {without_secrets(config.anchor_store or '')}."


def _watch(config: Config) -> str:
    watch = config.watch
    every, scheme = span(watch.every_ms).removeprefix("1 "), "https" if watch.tls_certificate else "http"
    return (
        f"watch would check every job every {every}, with {watch.requests_per_second:,} requests a second at most, "
        f"and serve the metrics at {scheme}://{watch.listen}/metrics."
        + (" All jobs are taken to run on this cluster (single_cluster)." if watch.single_cluster else "")
    )


def span(ms: int) -> str:
    """Milliseconds in the largest unit that divides them."""
    for unit in ("d", "h", "m", "s"):
        if ms and ms % UNITS[unit] == 0:
            return counted(ms // UNITS[unit], {"d": "day", "h": "hour", "m": "minute", "s": "second"}[unit])
    return f"{ms:,} ms"
