"""Plans: the findings for every partition, as a file that can be checked, shown and applied.

The format ``reconciler.plan/1`` is fixed by the product's contract. ``sha256`` covers the canonical JSON of everything
else: keys sorted, no spaces, only needed escapes, UTF-8.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reconciler.core.errors import Changed, ConfigError, NeedsPerson
from reconciler.core.json_fields import FieldError, Fields, canonical, digest_without, json_value
from reconciler.core.verdicts import Position, Verdict
from reconciler.plan.rows import PartitionPlan as PartitionPlan
from reconciler.plan.rows import PlanAnchor as PlanAnchor
from reconciler.plan.rows import SinkRow
from reconciler.plan.rows import StartPolicy as StartPolicy

FORMAT = "reconciler.plan/1"
NOT_BY_HAND = "Make a new plan; plans are not edited by hand (use --set and --accept instead)."
"""The hint for a file that is not a plan, or no longer one."""

_PLAN = frozenset(
    ("format", "tool_version", "created_at", "expires_at", "source", "destination", "jobs", "sha256"),
)
_GROWN = frozenset(("not_judged", "policy"))
"""Fields that a plan leaves out if they are empty."""
_NOT_JUDGED = frozenset(("name", "reason"))
_SOURCE = frozenset(("name", "cluster_id"))
_DESTINATION = frozenset(("name", "bootstrap_servers", "cluster_id"))
_JOB = frozenset(("name", "group", "store", "lives", "finding", "partitions"))
_JOB_GROWN = frozenset(("sinks", "policy"))

ROWS_AT_ONCE = 500
"""Rows in each piece of a plan's text."""
_LINE = json.JSONEncoder(ensure_ascii=False).encode
_INDENTED = json.JSONEncoder(ensure_ascii=False, indent=1).encode
_NO_JOBS = '"jobs": []'
"""Occurs once in a plan's text: within a string its quotes would be escaped."""

_TIME = re.compile(
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z", re.ASCII
)
"""RFC 3339 in UTC to the second, the one layout in which later times are larger texts."""
_A_TIME = "a time like 2026-01-31T06:00:00Z"


DEFAULT_POLICY = StartPolicy()


@dataclass(frozen=True, slots=True)
class JobPlan:
    """All rows of one job; its finding is the worst of them. ``sinks``: a row for each sink of the job.

    ``lives``: the cluster whose numbers the stored offsets are.
    """

    name: str
    group: str
    store: str
    partitions: tuple[PartitionPlan, ...]
    sinks: tuple[SinkRow, ...] = ()
    lives: str = ""

    @property
    def finding(self) -> Verdict:
        return max((row.finding for row in self.partitions), default=Verdict.EXACT)

    @property
    def policy(self) -> StartPolicy | None:
        """Its own policy, which all rows have; None if the plan's holds."""
        return next((row.policy for row in self.partitions), None)

    def under(self, policy: StartPolicy | None) -> JobPlan:
        """The job with this policy of its own."""
        if policy == self.policy:
            return self
        return replace(self, partitions=tuple(replace(row, policy=policy) for row in self.partitions))

    @property
    def starts(self) -> JobPlan:
        """The job with one row a partition: where the next records are read, without the ends of a repeated batch."""
        rows = self.without_ends.partitions
        return replace(self, partitions=tuple(replace(row, position=Position.NEXT) for row in rows))

    @property
    def without_ends(self) -> JobPlan:
        """The job without the ends of a repeated batch: a copy repeats it empty."""
        return replace(self, partitions=tuple(row for row in self.partitions if row.position != Position.END))

    @property
    def stopped_by(self) -> SinkRow | None:
        """The first sink because of which the job must not start."""
        return next((row for row in self.sinks if row.stops), None)

    def fields(self) -> dict[str, Any]:
        """The job as JSON values, with an empty list of partitions."""
        content: dict[str, Any] = {
            "name": self.name,
            "group": self.group,
            "store": self.store,
            "lives": self.lives,
            "finding": self.finding.value,
            "partitions": [],
        }
        if self.sinks:  # the field is absent where no sink is configured
            content["sinks"] = [row.to_json() for row in self.sinks]
        if self.policy is not None:
            content["policy"] = self.policy.to_json()
        return content

    def to_json(self) -> dict[str, Any]:
        return {**self.fields(), "partitions": [row.to_json() for row in self.partitions]}

    @classmethod
    def from_json(cls, value: object, where: str) -> JobPlan:
        fields = Fields(value, where, _JOB, _JOB_GROWN)
        assert isinstance(value, dict)
        listed = enumerate(fields.items("partitions"))
        rows = tuple(PartitionPlan.from_json(row, f"{where}.partitions[{number}]") for number, row in listed)
        for name in ("source_topic", "topic"):
            alone = {(getattr(row, name), row.partition) for row in rows if row.position is Position.NEXT}
            ends = [row for row in rows if row.position is not Position.NEXT]
            places = {(getattr(row, name), row.partition, row.position) for row in ends}
            if len(alone) + len(places) < len(rows) or any((topic, number) in alone for topic, number, _ in places):
                raise FieldError(where, "has two rows for one partition")
        listed = enumerate(fields.items("sinks") if "sinks" in value else [])
        sinks = tuple(SinkRow.from_json(row, f"{where}.sinks[{number}]") for number, row in listed)
        name, lives = fields.text("name"), fields.any_text("lives")
        job = cls(name, fields.text("group"), fields.text("store"), rows, sinks, lives)
        if fields.member("finding", Verdict) is not job.finding:
            raise FieldError(fields.place("finding"), "is not the worst of its partitions")
        if "policy" not in value:
            return job
        if not rows:
            raise FieldError(fields.place("policy"), "is of no partition")
        return job.under(StartPolicy.from_json(value["policy"], fields.place("policy")))


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A job that could not be judged when the plan was made, with the cause as a sentence."""

    name: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "reason": self.reason}

    @classmethod
    def from_json(cls, value: object, where: str) -> NotJudged:
        fields = Fields(value, where, _NOT_JUDGED)
        return cls(fields.text("name"), fields.text("reason"))


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole plan. ``created_at`` and ``expires_at`` are RFC 3339 text in UTC, as ``clock.stamp`` makes it.

    ``policy``: that of the configuration that it was made with, for readers without a configuration.
    """

    tool_version: str
    created_at: str
    expires_at: str
    source_name: str
    destination_name: str
    source_cluster_id: str | None
    bootstrap_servers: str
    cluster_id: str
    jobs: tuple[JobPlan, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    policy: StartPolicy = DEFAULT_POLICY

    @property
    def finding(self) -> Verdict:
        return max((job.finding for job in self.jobs), default=Verdict.EXACT)

    def job(self, name: str | None = None) -> JobPlan:
        """The job of that name, else the only one. A job that was not judged counts, too."""
        found = [job for job in self.jobs if name is None or job.name == name]
        if len(found) == 1 and (name is not None or not self.not_judged):
            return found[0]
        for failed in self.not_judged:
            if failed.name == name:
                raise NeedsPerson(
                    f'Job "{name}" could not be judged when the plan was made: {failed.reason}',
                    hint="Make a plan of it once that is fixed.",
                )
        known = ", ".join(job.name for job in self.jobs) or "none"
        if self.not_judged:
            known += f" (not judged: {', '.join(job.name for job in self.not_judged)})"
        if name is not None and not found:
            raise ConfigError(f'The plan has no job "{name}".', hint=f"It has: {known}.")
        raise NeedsPerson(f"Which job? The plan holds: {known}.", hint="Name one of them with --job.")

    @property
    def names(self) -> list[str]:
        """The names of the jobs; jobs that were not judged come last."""
        return [*(job.name for job in self.jobs), *(job.name for job in self.not_judged)]

    def only(self, names: Iterable[str]) -> Plan:
        """The plan of these jobs alone; the whole one without a name. Raises as ``job`` does."""
        chosen = tuple(self.job(name) for name in dict.fromkeys(names))
        return replace(self, jobs=chosen, not_judged=()) if chosen else self

    def under(self, own_policy: Callable[[str], StartPolicy | None]) -> Plan:
        """The plan with each job's own policy, by its name, in place of the one that the plan was made with."""
        return replace(self, jobs=tuple(job.under(own_policy(job.name)) for job in self.jobs))

    @property
    def starts(self) -> Plan:
        """The plan without the ends of repeated batches (see ``JobPlan.starts``)."""
        return replace(self, jobs=tuple(job.starts for job in self.jobs))

    def _fields(self) -> dict[str, Any]:
        """The plan as JSON values, with an empty list of jobs and without ``sha256``."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "tool_version": self.tool_version,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "source": {"name": self.source_name, "cluster_id": self.source_cluster_id},
            "destination": {
                "name": self.destination_name,
                "bootstrap_servers": self.bootstrap_servers,
                "cluster_id": self.cluster_id,
            },
            "jobs": [],
        }
        if self.not_judged:  # the field is absent where every job was judged
            content["not_judged"] = [job.to_json() for job in self.not_judged]
        if self.policy != DEFAULT_POLICY:
            content["policy"] = self.policy.to_json()
        return content

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values, ``sha256`` included."""
        return {**self._fields(), "jobs": [job.to_json() for job in self.jobs], "sha256": self.sha256}

    @property
    def sha256(self) -> str:
        """The plan's name: its own digest."""
        digest = hashlib.sha256()
        for _, content in _pieces(self._fields(), self.jobs):
            digest.update(content)
        return digest.hexdigest()

    def to_text(self) -> str:
        """The plan as a file's text: one line a partition, so that two plans can be compared by eye."""
        return "".join(self.texts())

    def texts(self) -> Iterator[str]:
        """``to_text`` in pieces, each released before the next is made: a large plan is never in memory as text."""
        fields, digest = self._fields(), hashlib.sha256()
        for text, content in _pieces(fields, self.jobs):
            digest.update(content)
            yield text
        yield _INDENTED({**fields, "sha256": digest.hexdigest()}).partition(_NO_JOBS)[2] + "\n"


def _pieces(fields: Mapping[str, Any], jobs: Sequence[JobPlan]) -> Iterator[tuple[str, bytes]]:
    """The text up to the end of the jobs, and the canonical JSON, in pieces that belong together."""
    before, _, after = canonical(fields).partition(b'"jobs":[]')
    yield _INDENTED(fields).partition(_NO_JOBS)[0] + '"jobs": [', before + b'"jobs":['
    for number, job in enumerate(jobs):
        own, comma = job.fields(), "," if number else ""
        begin, _, end = canonical(own).partition(b'"partitions":[]')
        head = _LINE(own | {"partitions": own.pop("partitions")}).removesuffix("]}")
        yield f"{comma}\n  {head}", comma.encode() + begin + b'"partitions":['
        rows = job.partitions
        for first in range(0, len(rows), ROWS_AT_ONCE):
            values, comma = [row.to_json() for row in rows[first : first + ROWS_AT_ONCE]], "," if first else ""
            lines = ",".join(f"\n   {_LINE(value)}" for value in values)
            yield comma + lines, comma.encode() + canonical(values)[1:-1]
        yield "\n  ]}" if rows else "]}", b"]" + end
    yield "\n ]" if jobs else "]", b"]" + after


def digest(content: Mapping[str, Any]) -> str:
    """SHA-256 in hex over the canonical JSON of everything but ``sha256`` itself."""
    return digest_without(content, "sha256")


def parse_plan(text: str | bytes) -> Plan:
    """A plan from its file's text or bytes. Raises ``Changed`` if it is not what this product wrote.

    The checksum detects accidents. A person who alters a plan on purpose can make the checksum fit, so every field is
    checked as well; only signatures restrict who may decide what a plan says.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")  # editors on Windows begin a file with a byte order mark
        except UnicodeDecodeError as error:
            raise Changed("The file is not a plan: it is not text.", hint=NOT_BY_HAND) from error
    if not text.strip():
        raise Changed("The file is not a plan: it is empty.", hint=NOT_BY_HAND)
    try:
        content = json_value(text, fractions=False)
    except FieldError as error:
        raise Changed(f"The file is not a plan: {error.sentence}.", hint=NOT_BY_HAND) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else None
        named = "names no format" if found is None else f"says {_excerpt(found)}"
        raise Changed(f"The file is not a plan of format {FORMAT} (it {named}).", hint=NOT_BY_HAND)
    try:
        sha256 = digest(content)
    except FieldError:  # text that is not Unicode, or values nested without end
        sha256 = None
    if sha256 is None or content.get("sha256") != sha256:
        raise Changed("The plan was altered after it was made: its sha256 does not match the rest.", hint=NOT_BY_HAND)
    try:
        return _plan(content)
    except FieldError as error:
        raise Changed(f"The plan is not valid: {error.sentence}.", hint=NOT_BY_HAND) from error


def _excerpt(value: object) -> str:
    """A value from a file, short enough for a sentence, in ASCII."""
    text = ascii(value) if isinstance(value, str | int | float | None) else type(value).__name__
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plan(content: Mapping[str, Any]) -> Plan:
    fields = Fields(content, "", _PLAN, _GROWN)
    listed = fields.items("not_judged") if "not_judged" in content else None
    if listed == []:
        raise FieldError("not_judged", "is empty")
    source = Fields(fields.value("source"), "source", _SOURCE)
    destination = Fields(fields.value("destination"), "destination", _DESTINATION)
    plan = Plan(
        tool_version=fields.text("tool_version"),
        created_at=fields.matching("created_at", _TIME, _A_TIME),
        expires_at=fields.matching("expires_at", _TIME, _A_TIME),
        source_name=source.text("name"),
        source_cluster_id=source.text_or_null("cluster_id"),
        destination_name=destination.text("name"),
        bootstrap_servers=destination.any_text("bootstrap_servers"),
        cluster_id=destination.text("cluster_id"),
        jobs=tuple(JobPlan.from_json(job, f"jobs[{number}]") for number, job in enumerate(fields.items("jobs"))),
        not_judged=tuple(NotJudged.from_json(job, f"not_judged[{number}]") for number, job in enumerate(listed or ())),
        policy=StartPolicy.from_json(content["policy"], "policy") if "policy" in content else DEFAULT_POLICY,
    )
    if "policy" in content and plan.policy == DEFAULT_POLICY:
        raise FieldError("policy", "is the default one, which a plan leaves out")
    if plan.expires_at <= plan.created_at:
        raise FieldError(None, "expires before it was made")
    if len(set(plan.names)) < len(plan.names):
        raise FieldError("jobs", "has two jobs of one name")
    return plan
