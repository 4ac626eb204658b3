"""Addresses of tables in whose transactions a job keeps its offsets, and the read-only store of both kinds.

    SCHEME:PLACE?layout=…&number=next|last

Nothing is opened here. A library is imported when the table is first read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from reconciler.config.addresses import without_secrets
from reconciler.core.errors import ConfigError, NotCreated, Refused
from reconciler.places import common
from reconciler.places.parameters import Number, Parameters, number_in, wrong_address
from reconciler.places.table_offsets import GROUP, PARTITION, TOPIC, CommitOffsets, Lists
from reconciler.ports import Row

WALK = 1000
"""The most commits that a read looks at, unless the address says otherwise."""
MOST_PARTITIONS = 10_000
COLUMNS = "columns"


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table's rows; ``topic`` None: all rows are of the topic ``topic_name``. None of them nested."""

    topic: str | None
    topic_name: str | None
    partition: str
    offset: str
    group: str | None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.topic, self.partition, self.offset, self.group) if name is not None)

    def check(self, types: Mapping[str, str], integers: Collection[str], table: str) -> None:
        """Raise Refused where the table lacks one of them, or a type does not fit. ``integers``: its whole numbers."""
        for name in self.names:
            if name not in types:
                raise Refused(
                    f"The table {table} has no column {name!a}.",
                    hint=f"Correct the store's address; the table has: {', '.join(types)}.",
                )
            is_number = name in (self.partition, self.offset)
            if types[name] not in (integers if is_number else {"string"}):
                kind = "whole numbers" if is_number else "text"
                raise Refused(
                    f"The column {name!a} of {table} has the type {types[name]}, and {kind} are expected there.",
                    hint="Name another column in the store's address.",
                )


@dataclass(frozen=True, slots=True)
class TableAddress:
    """An address taken apart. Which parts are there depends on ``layout``; see ``parse``.

    ``place`` is the table's own address, with its login; ``shown`` the store's, without secrets.
    """

    place: str
    shown: str
    layout: str
    number: Number
    of_group: str | None
    field: str = ""
    within: tuple[str, ...] = ()
    lists: Lists = Lists.CHANGED
    walk: int = WALK
    branch: str | None = None
    columns: TableColumns | None = None
    app_id: str = ""
    topic_name: str | None = None
    partitions: int = 0

    @property
    def table(self) -> str:
        """The table in sentences: the address without its parameters, and without secrets."""
        return self.shown.partition("?")[0]

    def kept(self, what: str = "") -> CommitOffsets:
        """The rules by which rows are made; ``what`` names the source of the offsets in the table, for messages."""
        place = f"the {what} of {self.table}" if what else f"the rows of {self.table}"
        return CommitOffsets(self.number, self.lists, self.within, place)


def no_table(sentence: str) -> NotCreated:
    """The error for a table that does not exist, as ``sentence`` says."""
    return NotCreated(
        sentence, hint="Correct the store's address. If the job has never run, its first batch creates the table."
    )


def parse(address: str, *, named: str, others: Sequence[str], property_: str | None, example: str) -> TableAddress:
    """Take an address apart. Raises ConfigError for one that is not whole.

    ``named`` is the layout whose commits name offsets, with ``property_`` as the default of ``property=`` (None:
    required); ``others`` are ``txn`` and ``branch``, where the table has them.
    """
    wrong = partial(wrong_address, f"A store's address {address.partition(':')[0]}:…", example)
    place, _, query = address.partition(":")[2].partition("?")
    if not place:
        raise wrong("it names no table")
    common.check_name("place of the table", place)
    given = _Given(Parameters(query, wrong), wrong)
    parameters = given.parameters
    layout = parameters.choice("layout", named, *(["txn"] if "txn" in others else []), COLUMNS, required=True)
    kind = number_in(parameters, required=True)
    found = TableAddress(place, without_secrets(address), layout, kind, given.text("of_group"))
    if "branch" in others:
        found = replace(found, branch=given.text("branch"))
    if layout == named:
        found = _with_property(found, given, property_)
    elif layout == COLUMNS:
        found = replace(found, columns=_columns(given))
    else:
        found = _with_app_id(found, given)
    if found.of_group and GROUP in f"{found.field}{found.app_id}":
        raise wrong(f"of_group= says whose offsets they are, and {GROUP} asks for each group's own")
    parameters.check_all_known()
    return found


@dataclass(frozen=True, slots=True)
class _Given:
    """An address's parameters; ``wrong`` makes the error for one that cannot be."""

    parameters: Parameters
    wrong: Callable[[str], ConfigError]

    def text(self, name: str) -> str | None:
        """The parameter's text, None if it is missing. Raises ConfigError for an empty one."""
        value = self.parameters.text(name)
        if value is not None:
            if not value:
                raise self.wrong(f"{name}= is empty")
            common.check_name(f"{name} in a store's address", value)
        return value

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise self.wrong(f"{name}= is missing")
        return value


def _with_property(found: TableAddress, given: _Given, by_default: str | None) -> TableAddress:
    name = given.required("property") if by_default is None else given.text("property") or by_default
    path = given.text("field")
    lists = Lists(given.parameters.choice("lists", Lists.CHANGED.value, Lists.ALL.value))
    walk = given.parameters.number("walk", WALK, 10**6)
    return replace(found, field=name, within=tuple(path.split(".")) if path else (), lists=lists, walk=walk)


def _columns(given: _Given) -> TableColumns:
    topic, topic_name = given.text("topic"), given.text("topic_name")
    if (topic is None) == (topic_name is None):
        raise given.wrong("it needs topic=, the column with the topic, or topic_name=, the topic of all rows")
    columns = TableColumns(
        topic, topic_name, given.required("partition"), given.required("offset"), given.text("group")
    )
    if len({*columns.names}) != len(columns.names):
        raise given.wrong("two of its columns are the same")
    return columns


def _with_app_id(found: TableAddress, given: _Given) -> TableAddress:
    app_id, topic_name = given.required("app_id"), given.text("topic_name")
    if PARTITION not in app_id:
        raise given.wrong(f"app_id={app_id!a} has no {PARTITION} in it: a name for each partition is expected")
    if (topic_name is None) == (TOPIC not in app_id):
        raise given.wrong(f"it needs {TOPIC} in its app_id=, or topic_name=, the one topic that the names are of")
    most = given.parameters.number("partitions", None, MOST_PARTITIONS)
    return replace(found, app_id=app_id, topic_name=topic_name, partitions=most)


class TableStore(common.JobsOwnStore):
    """A table as a store: only the job writes to it. Satisfies ``ports.OffsetStore``. Raises what ``_rows`` raises."""

    def __init__(self, at: TableAddress) -> None:
        self.address = at.shown
        self._at = at

    @abstractmethod
    def _rows(self, group: str, topics: frozenset[str] | None) -> list[Row]:
        """The rows of a group, of these topics or all."""

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, ordered by topic and partition; a row's time is that of its commit."""
        common.check_group(group, self._at.of_group, self._at.table)
        wanted = common.wanted_topics(topics)
        return common.rows_of_topics(self._rows(group, wanted), wanted)

    def check_writable(self, group: str) -> None:
        """Raise Refused: the offsets belong to the table's data, and change in one transaction with it."""
        common.check_group(group, self._at.of_group, self._at.table)
        raise common.written_by_job(f"The table {self._at.table}")
