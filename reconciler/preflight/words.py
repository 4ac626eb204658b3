"""A configuration in words, for a reader who did not write it. Contacts nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from reconciler.config.addresses import without_secrets
from reconciler.config.file import Cluster, Config, Job
from reconciler.config.identity import IdentitySettings, settings_of
from reconciler.config.settings import MEANINGS
from reconciler.core.question import StartPlace
from reconciler.places.parameters import number_of
from reconciler.places.registry import traits
from reconciler.ports import Capabilities

MOST_TOPICS = 12
_ADDRESSES = ("state.store", "metrics.pushgateway")
"""Settings that may hold a login."""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, and sentences under it."""

    title: str
    lines: tuple[str, ...]


def explained(config: Config, jobs: Sequence[Job], abilities: Mapping[str, Capabilities]) -> list[Section]:
    """The whole configuration. ``abilities``: what each job's store can do by itself, by the job's name."""
    sections = [Section("clusters", tuple(_clusters(config))), Section("topics", tuple(_topics(config, jobs)))]
    sections += [Section(f"job {job.name}", tuple(_job(config, job, abilities.get(job.name)))) for job in jobs]
    return [*sections, Section("settings", tuple(_settings(config)))]


def _clusters(config: Config) -> Iterator[str]:
    for name, cluster in config.clusters.items():
        if cluster is None:
            yield f"{name} has no address: no job can start there or move there, and nothing of it is read."
        else:
            yield f"{name} is the cluster at {_reached(cluster)}."


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
    names = sorted({topic for job in jobs for topic in job.topics})
    for topic in names[:MOST_TOPICS]:
        yield f"{topic} -> {config.topics.destination_of(topic)}"
    if len(names) > MOST_TOPICS:
        yield f"… and {len(names) - MOST_TOPICS:,} more."


def _job(config: Config, job: Job, able: Capabilities | None) -> Iterator[str]:
    topics = ", ".join([*job.patterns, *job.topics][:MOST_TOPICS])
    topics += " and more" if len(job.patterns) + len(job.topics) > MOST_TOPICS else ""
    yield f"Its home is {job.home}, where it reads {topics}."
    groups = ", ".join(f'"{group}" on {cluster}' for cluster, group in job.groups.items()) or f'"{job.group}"'
    yield f"Its offsets are in {without_secrets(job.store)}, under the group {groups}."
    if able is not None:
        yield _store_can(job, able)
        yield f"A stored number is taken for {number_of(job.store).words}."
    yield _identity(job)
    if job.new is not None:
        place = job.new.place.value if job.new.place is not StartPlace.TIME else "the time given"
        yield f"The job is called new ({place}): it may start although its store has no row of a topic."


def _store_can(job: Job, able: Capabilities) -> str:
    if traits(job.store).corrected_in_copy:
        correction = "That is a checkpoint, and only read: a correction is made in a copy of it"
    elif traits(job.store).corrected_by_job:
        correction = "Only the job writes to that table: a correction is recorded, and the job begins there"
    elif not able.writable:
        correction = "That store is only read"
    elif able.atomic_batches:
        correction = "A correction is written there whole, or not at all"
    else:
        correction = "A correction is written there row by row; if it is cut off, apply finishes it"
    return f"{correction}. {_anchors_kept(able)}"


def _anchors_kept(able: Capabilities) -> str:
    if able.translated_by_mirror:
        return "Anchors are in the job's journal, and in the commits' metadata, where the job puts some there."
    if able.keeps_anchors:
        return "Anchors are kept with the offsets, and in the job's journal."
    return "Anchors are in the job's journal."


def _identity(job: Job) -> str:
    given = asdict(settings_of(job.identity))
    usual = asdict(IdentitySettings())
    named = ", ".join(f"{key} = {json.dumps(value)}" for key, value in given.items() if value != usual[key])
    how = "a fingerprint of its key and value, and by its time" if given["id"] == usual["id"] else "its id"
    return f"A record is identified by {how}{f': {named}' if named else ''}."


def _settings(config: Config) -> Iterator[str]:
    """Every setting that has a value, with its meaning; no secret is among them."""
    for key, meaning in MEANINGS.items():
        value = config.settings.get(key)
        if value in (None, [], False):
            continue
        table, _, name = key.partition(".")
        shown = without_secrets(str(value)) if key in _ADDRESSES else value
        yield f"[{table}] {name} = {json.dumps(shown, ensure_ascii=False)}: {meaning}."
