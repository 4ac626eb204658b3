"""A configuration as a file with comments that say where each line comes from. Pure."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from reconciler.core.question import TopicPolicy
from reconciler.core.text import is_hidden, some
from reconciler.kafka.mirror.topics import Mirror
from reconciler.places.parameters import is_undecided
from reconciler.preflight.survey import NONE, Proposal

COLUMNS = 100
UNNAMED_HOME = "home"
"""The source's name if no mirror gives it one: its topics keep their names."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ProposedJob:
    """A ``[[jobs]]`` table, named as its group; ``found`` is a sentence about its rows in the store."""

    group: str
    topics: Sequence[str]
    store: str
    identity: Proposal
    found: str


@dataclass(frozen=True, slots=True)
class Proposed:
    """Everything to write. ``client`` and stores hold no secret; ``needed`` names the variables that do."""

    version: str
    name: str
    """MirrorMaker's name of the cluster that was looked at."""
    servers: str
    cluster_id: str
    client: Mapping[str, str]
    source_servers: str | None
    mirror: Mirror
    jobs: Sequence[ProposedJob]
    bare_jobs: Sequence[str] = ()
    """Jobs with offsets without an anchor in their store."""
    other_topics: Sequence[str] = ()
    """Mirrored topics without a job."""
    needed: Sequence[str] = ()

    @property
    def home(self) -> str:
        return self.mirror.alias or UNNAMED_HOME


def config_text(found: Proposed) -> str:
    """The file."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Proposed) -> Iterator[str]:
    yield from _comment(
        f"Written by reconciler init {found.version} from what it found at {found.servers} (cluster "
        f"{found.cluster_id}). Review it, then run: reconciler config check. Every key: "
        "docs/reference/configuration.md"
    )
    if found.needed:
        yield from _comment(f"Secrets are not in here. Set in the environment: {', '.join(found.needed)}")
    yield from _source(found)
    yield ""
    yield f"[clusters.{_key(found.name)}]"
    yield from _comment("The other cluster, where jobs continue after a failover.")
    yield f"bootstrap_servers = {quoted(found.servers)}"
    if found.client:
        yield ""
        yield f"[clusters.{_key(found.name)}.client]    # any property of librdkafka"
        for name, value in found.client.items():
            yield f"{quoted(name)} = {quoted(value)}"
    yield from _topics(found)
    yield from _state(found)
    yield from _policy(found.client.get("oauth", ""))
    for job in found.jobs:
        yield from _job(job, found.home)
    if found.other_topics:
        yield ""
        topics = some(found.other_topics, 20)
        yield from _comment(f"Mirrored too, but no offset of theirs was found in that store: {topics}.")


def _source(found: Proposed) -> Iterator[str]:
    yield ""
    yield f"[clusters.{_key(found.home)}]"
    if found.mirror.seen:
        yield from _comment(f"MirrorMaker's name of the source, by its topic {found.mirror.seen[0]}")
    yield from _comment("The jobs' home. A failover needs nothing from it.")
    if found.source_servers:
        yield f"bootstrap_servers = {quoted(found.source_servers)}"
    else:
        yield '# bootstrap_servers = "HOST:PORT"'


def _topics(found: Proposed) -> Iterator[str]:
    mirror = found.mirror
    yield ""
    yield "[topics]"
    if mirror.policy is TopicPolicy.IDENTITY:
        why = f": none begins with {mirror.alias} and a separator" if mirror.alias and mirror.seen else ""
        yield from _comment(f"Mirrored topics keep their names{why}.")
    else:
        topic = mirror.topics[0] if mirror.topics else f"{mirror.alias}{mirror.separator}TOPIC"
        yield from _comment(f"{mirror.source_of(topic)} is {topic} here")
    yield f"policy = {quoted(mirror.template or mirror.policy)}"
    if mirror.policy is TopicPolicy.DEFAULT or mirror.separator != ".":
        yield f"separator = {quoted(mirror.separator)}"
    own = {key: name for key, name in asdict(mirror.own).items() if name is not None}
    if own:
        yield ""
        yield "[mirror]"
        yield from _comment("MirrorMaker's own topics here, which have other names than usual")
        if "offset_syncs_topic" in own:
            yield from _comment("(remove offset_syncs_topic if a mirror from here writes to that topic, too)")
        yield from (f"{key} = {quoted(name)}" for key, name in own.items())


def _state(found: Proposed) -> Iterator[str]:
    yield ""
    yield from _comment("Where the jobs live is recorded here. It must outlive either cluster. init -c FILE makes it.")
    yield "# [state]"
    yield '# store = "postgresql://HOST/DATABASE"'
    if found.bare_jobs:
        yield from _comment(
            f"Offsets without an anchor were found for {some(found.bare_jobs)}. Let reconciler track run while the "
            "jobs' home is alive."
        )


def _policy(function: str) -> Iterator[str]:
    """The table; ``function`` makes the login's tokens, as ``python:MODULE:FUNCTION``; empty if there is none."""
    yield ""
    yield from _comment("Findings that start without a decision. These are the defaults.")
    yield "[policy]"
    yield '# new = "earliest"    # or "latest", or a time: where a partition without stored offset starts'
    yield '# behind = "start"    # or "wait", "stop": whether a partition may start whose anchor has not been delivered'
    yield "# max_replay = 1000000    # the most records a partition that starts early may read again"
    yield '# no_anchor = "mirror"    # or "row-time", "stop": how a stored offset without anchor is located'
    if function:
        yield f"python = [{quoted(function.split(':')[1])}]    # whose functions the commands may run"


def _job(job: ProposedJob, home: str) -> Iterator[str]:
    yield ""
    yield "[[jobs]]"
    yield from _comment(job.found)
    yield f"name = {quoted(job.group)}    # and its group, unless group says otherwise"
    yield f"home = {quoted(home)}"
    topics = ", ".join(map(quoted, job.topics))
    yield f"topics = [{topics}]    # names at home"
    yield f"offsets = {quoted(job.store)}"
    if is_undecided(job.store):
        yield from _comment(
            "Its numbers are taken for the next offset to read. If they are the last processed one, add &number=last "
            "to the address: else the job may skip a record of each partition after a failover."
        )
    yield ""
    yield "[jobs.identity]"
    for sentence in job.identity.why:
        yield from _comment(sentence)
    mark = "    # records are identified by a fingerprint of key and value" if job.identity.id == NONE else ""
    yield f"id = {quoted(job.identity.id)}{mark}"
    if job.identity.framed:
        yield 'frame = "confluent"    # another registry gives schemas other ids'
    if job.identity.id not in (NONE, "key"):
        yield from _comment("Only if no two records of a partition ever share an id, whatever a producer retries:")
        yield "# unique_ids = true"


def _comment(text: str) -> list[str]:
    """A comment. Names come from outside: a line break in one must not start a line of its own."""
    clean = "".join(character if character.isprintable() else "?" for character in text)
    return textwrap.wrap(
        clean, COLUMNS, initial_indent="# ", subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
    )


def _key(name: str) -> str:
    """A name as a part of a TOML table's name."""
    return name if _BARE_KEY.fullmatch(name) else quoted(name)


def quoted(text: str) -> str:
    """A TOML string on one line. JSON's escapes are TOML's, too; JSON leaves DEL and invisible characters unescaped."""
    return "".join(f"\\U{ord(each):08x}" if is_hidden(each) else each for each in json.dumps(text, ensure_ascii=False))
