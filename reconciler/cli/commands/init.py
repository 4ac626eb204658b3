"""Writes a configuration whose comments give the origin of each line. MirrorMaker's own topics on the destination
give the source's name and the naming of topics. Groups with offsets of mirrored topics become jobs. A sample of each
topic's records shows what identifies them.

It asks no questions: options replace its findings, and it says which one is missing. It only reads, and connects to
the destination and the store, never to the source. Passwords are not written: the file names environment variables for
them. An existing file is left alone unless --force is given.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler import __version__
from reconciler.cli.commands.init_mirror import find_mirror, naming_rule
from reconciler.cli.terminal.help import Help
from reconciler.cli.terminal.output import say, show_text
from reconciler.config.addresses import are_brokers
from reconciler.config.file import SearchSettings, any_home, load_config
from reconciler.config.secrets import filled, remember
from reconciler.core.errors import ConfigError, ExitCode, ReconcilerError
from reconciler.core.text import command, counted
from reconciler.failover import inputs
from reconciler.fileio import refuse_unwritable, write_whole
from reconciler.kafka.errors import SECTION
from reconciler.kafka.mirror.topics import Mirror
from reconciler.kafka.reading_process import open_log
from reconciler.kafka.requests import Surveyor
from reconciler.near import known_names
from reconciler.places.parameters import is_undecided, suspicious_name
from reconciler.places.registry import open_store
from reconciler.ports import LogReader
from reconciler.preflight.client_properties import (
    SERVERS,
    address_without_secret,
    client_without_secrets,
    given_properties,
    read_properties,
)
from reconciler.preflight.survey import FoundJob, FoundStore, description, jobs_in, left_out, propose, sample
from reconciler.preflight.text import Proposed, ProposedJob, config_text

EXAMPLE = "reconciler init --bootstrap-servers localhost:29092 --store sqlite:///offsets.db"
HELP = Help(
    __doc__,
    [
        ("a job that keeps its offsets in a SQLite file", EXAMPLE),
        (
            "consumer groups, with the settings file of Kafka's own tools",
            "reconciler init --bootstrap-servers b:9092 --client-config client.properties --store kafka-group:",
        ),
        (
            "a login, with the password from the environment",
            "reconciler init --bootstrap-servers b:9092 --client security.protocol=SASL_SSL --client "
            "sasl.mechanism=SCRAM-SHA-512 --client sasl.username=me --client 'sasl.password=${KAFKA_PASSWORD}'",
        ),
        ("make the state store of a configuration", "reconciler init -c reconciler.toml"),
        ("print the configuration", "reconciler init --bootstrap-servers b:9092 --output -"),
    ],
    {
        ExitCode.OK: "the file was written",
        ExitCode.USAGE: "something is unknown and stdin is not a terminal, or the file exists already",
        ExitCode.UNREACHABLE: "the cluster or the store could not be reached, or refused: nothing was written",
    },
    files={"reconciler.toml": "the configuration (see --output)"},
    see_also=("reconciler config check", "docs/guide.md", "docs/reference/configuration.md"),
)
RECORDS = 200
STORE_VARIABLE = "RECONCILER_STORE_PASSWORD"
KAFKA_GROUP = "kafka-group:"
_READABLE = 0o644

log = logging.getLogger("reconciler.init")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        type=Path,
        help="make the state store that this configuration names, and nothing else",
    )
    clusters = parser.add_argument_group("the destination cluster")
    clusters.add_argument("--bootstrap-servers", metavar="HOST:PORT,…", help="where jobs continue after a failover")
    clusters.add_argument(
        "--client",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a client property (repeatable); a value may be ${VARIABLE} or file:PATH",
    )
    clusters.add_argument("--client-config", metavar="FILE", type=Path, help="a properties file of Kafka's own tools")
    mirror = parser.add_argument_group("the mirror (default: from MirrorMaker's topics)")
    mirror.add_argument("--alias", metavar="NAME", help="MirrorMaker's name of the source, the jobs' home")
    mirror.add_argument("--name", metavar="NAME", help="MirrorMaker's name of the destination")
    mirror.add_argument(
        "--policy",
        metavar="RULE",
        type=naming_rule,
        help="default: a.events · identity: events · or a template like {topic}.replica",
    )
    mirror.add_argument("--separator", metavar="TEXT", help="between alias and topic (default: .)")
    mirror.add_argument(
        "--source-bootstrap-servers",
        metavar="HOST:PORT,…",
        help="written to the file for hook and track; not connected to",
    )
    jobs = parser.add_argument_group("jobs (default: from the store)")
    jobs.add_argument("--store", metavar="ADDRESS", help=f"where the jobs keep their offsets (default: {KAFKA_GROUP})")
    jobs.add_argument("--group", metavar="NAME", action="append", default=[], help="only this group (repeatable)")
    jobs.add_argument(
        "--topic", metavar="NAME", action="append", default=[], help="only this topic of the source (repeatable)"
    )
    jobs.add_argument(
        "--records", metavar="N", type=int, default=RECORDS, help=f"sample N records of a topic (default: {RECORDS})"
    )
    written = parser.add_argument_group("output")
    written.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        default=Path("reconciler.toml"),
        help="- for stdout (default: reconciler.toml)",
    )
    written.add_argument("--force", action="store_true", help="overwrite an existing file")


@dataclass(frozen=True, slots=True)
class _Client:
    """The destination's settings: as used, as written to the file, and the variables that the file needs."""

    used: Mapping[str, str]
    properties: Mapping[str, str]
    needed: Mapping[str, str]

    @property
    def servers(self) -> str:
        return self.used[SERVERS]


def run(options: argparse.Namespace) -> ExitCode:
    if options.config is not None:
        return _make_state_store(options.config)
    try:
        return _run(options)
    except ReconcilerError as error:  # there is no file yet in which to correct them
        error.hint = error.hint and error.hint.replace(f"under {SECTION}", "in the client's properties").replace(
            SECTION, "the client's properties"
        )
        raise


def _make_state_store(path: Path) -> ExitCode:
    with closing(inputs.open_state_store(load_config(path, homes=any_home))) as store:
        store.create()
        say(f"The state store {store.shown} is ready; its id begins with {store.id[:8]}.")
    return ExitCode.OK


def _run(options: argparse.Namespace) -> ExitCode:
    _refuse_wrong_options(options)
    client = _client(options)
    surveyor = Surveyor(client.used)
    reader = open_log(client.used, memory=SearchSettings().memory)
    try:
        topics = surveyor.topics()
        cluster_id = reader.describe(()).cluster_id
        log.info("cluster %s at %s: %s", cluster_id, client.servers, counted(len(topics), "topic"))
        mirror = find_mirror(options, list(topics))
        address, stored = _store(options, client, mirror, surveyor)
        written_store, store_needs = address_without_secret(address, STORE_VARIABLE)
        found = _chosen(options, stored)
        jobs = [_job(job, written_store, stored, reader, mirror, options.records) for job in found]
    finally:
        reader.close()
        surveyor.close()
    needed = {**client.needed, **store_needs}
    mine = {topic for job in jobs for topic in job.topics}
    text = config_text(
        Proposed(
            version=__version__,
            name=_name(options, mirror),
            servers=client.properties[SERVERS],
            cluster_id=cluster_id,
            client={name: value for name, value in client.properties.items() if name != SERVERS},
            source_servers=options.source_bootstrap_servers,
            mirror=mirror,
            jobs=jobs,
            bare_jobs=[job.group for job in found if job.without_anchor and stored.able.needs_tracking],
            other_topics=[name for name in map(mirror.source_of, mirror.topics) if name not in mine],
            needed=list(needed),
        )
    )
    _write(options, text, needed)
    _report(options, jobs, needed, stored, found)
    return ExitCode.OK


def _refuse_wrong_options(options: argparse.Namespace) -> None:
    if not 1 <= options.records <= 100_000:
        raise ConfigError(f"--records {options.records} is not a number from 1 to 100,000.")
    _refuse_to_overwrite(options)
    if str(options.output) != "-":
        refuse_unwritable(options.output, other="--output")


# ---------------------------------------------------------------- the cluster


def _client(options: argparse.Namespace) -> _Client:
    read = []
    if options.client_config is not None:
        read.append(read_properties(options.client_config))
    read.append(given_properties(options.client))
    if left_out := dict.fromkeys(name for each in read for name in each.left_out):
        log.info("left out, since they are not connection settings of this client: %s", ", ".join(left_out))
    given = {name: value for each in read for name, value in each.client.items()}
    servers = options.bootstrap_servers or given.get(SERVERS)
    if not servers:
        raise ConfigError(
            "The destination's bootstrap servers are not known.", hint="Add --bootstrap-servers HOST:PORT."
        )
    given[SERVERS] = servers
    safe, needed = client_without_secrets(given)
    used = filled(given, os.environ, {})
    if not are_brokers(used[SERVERS]):
        raise ConfigError("The bootstrap servers are not a list of brokers.", hint='Write "kafka-1:9092,kafka-2:9092".')
    for name, value in safe.items():
        remember(f"clusters.client.{name}", value, used[name])
    return _Client(used, safe, needed)


def _name(options: argparse.Namespace, mirror: Mirror) -> str:
    """The destination's name: topics produced there have it in front when they are mirrored back."""
    return options.name or ("standby" if mirror.alias != "standby" else "other")


# ---------------------------------------------------------------- jobs


def _store(options: argparse.Namespace, client: _Client, mirror: Mirror, surveyor: Surveyor) -> tuple[str, FoundStore]:
    """The store's address as given, and its content."""
    address = options.store or KAFKA_GROUP
    used = str(filled(address, os.environ, {}))
    remember("anchors.store", address_without_secret(address, STORE_VARIABLE)[0], used)
    if options.topic:
        mirror = replace(mirror, topics=_only(mirror, options.topic))
    found = jobs_in(lambda: open_store(used, kafka_client=client.used), mirror, options.group, surveyor.groups)
    if options.topic:  # the others may be mirrored, and were left out on purpose
        found = replace(found, jobs=tuple(replace(job, not_mirrored=()) for job in found.jobs))
    log.info("%s with offsets of mirrored topics in %s", counted(len(found.jobs), "group"), found.address)
    warn_of_number(address, found.address)
    return address, found


def warn_of_number(address: str, shown: str) -> None:
    """Warn if the address does not say what the store's numbers mean; the store cannot."""
    if is_undecided(address):
        suggests = f' ("{name}" suggests the last)' if (name := suspicious_name(address)) else ""
        log.warning(
            "The numbers in %s are taken for the next offset to read%s. If they are the last processed one, add "
            "&number=last to the store's address, or the job may skip a record of each partition.",
            *(shown, suggests),
        )


def _only(mirror: Mirror, topics: Sequence[str]) -> tuple[str, ...]:
    names = {mirror.source_of(name): name for name in mirror.topics}
    unknown = [topic for topic in topics if topic not in names]
    if unknown:
        raise ConfigError(
            f'The cluster has no mirrored topic named "{unknown[0]}".',
            hint=f"It has: {known_names(unknown[0], names)}.",
        )
    return tuple(names[topic] for topic in topics)


def _chosen(options: argparse.Namespace, stored: FoundStore) -> list[FoundJob]:
    """The jobs to write. A job given with its topics may have no offsets yet."""
    known = {job.group: job for job in stored.jobs}
    if options.group and options.topic:
        for group in options.group:
            known.setdefault(group, FoundJob(group, tuple(options.topic), 0, 0, frozenset()))
    if not known:
        held = "".join(f" {group}: {words}." for group, words in stored.without_rows.items())
        raise ConfigError(
            f"No group in {stored.address} has offsets of a mirrored topic.{held}",
            hint="If the job has run, correct --group or --store; else name it with --group and --topic.",
        )
    return list(known.values())


def _job(job: FoundJob, store: str, stored: FoundStore, reader: LogReader, mirror: Mirror, records: int) -> ProposedJob:
    here = {mirror.source_of(name): name for name in mirror.topics}
    seen = sample(reader, [here[topic] for topic in job.topics if topic in here], records)
    return ProposedJob(job.group, job.topics, store, propose(seen), description(job, stored))


# ---------------------------------------------------------------- the file


def _refuse_to_overwrite(options: argparse.Namespace) -> None:
    if str(options.output) != "-" and options.output.exists() and not options.force:
        raise ConfigError(f"{options.output} exists already.", hint="Choose another --output, or add --force.")


def _write(options: argparse.Namespace, text: str, needed: Mapping[str, str]) -> None:
    """Write the file if it loads as a configuration, and never over a file created in the meantime."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / "reconciler.toml"
        trial.write_text(text, encoding="utf-8")
        try:
            load_config(trial, {**os.environ, **needed})
        except ConfigError as error:
            problem = error.message.replace(f"{trial}: ", "")
            raise ConfigError(f"The findings do not make a valid configuration: {problem}", hint=error.hint) from error
    if str(options.output) == "-":
        show_text(text)
        return
    _refuse_to_overwrite(options)
    write_whole(options.output, text)
    options.output.chmod(_READABLE)  # it holds no secret, and the job's user must read it


def _report(
    options: argparse.Namespace,
    jobs: Sequence[ProposedJob],
    needed: Mapping[str, str],
    stored: FoundStore,
    found: Sequence[FoundJob],
) -> None:
    for group, held in stored.without_rows.items():
        log.warning("%s: %s. If the job has run, correct --group or --store, and write the file again.", group, held)
    if stored.unasked:
        log.warning(
            "%s does not list its groups, and was not asked for %s of the cluster: name the jobs' groups with --group.",
            stored.address,
            counted(stored.unasked, "more group"),
        )
    for job in found:
        if job.not_mirrored:
            log.warning("%s: %s", job.group, left_out(job))
    if str(options.output) == "-":
        return
    names = ", ".join(job.group for job in jobs)
    say(f"{options.output} written, with {counted(len(jobs), 'job')}: {names}.")
    if needed:
        say(f"It holds no secrets. Set in the environment first: {', '.join(needed)}.")
    say(f"Next: {command('reconciler', 'config', 'check', '-c', options.output)}")
