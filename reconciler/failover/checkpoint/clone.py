"""A copy of a Structured Streaming checkpoint that continues at another cluster, with its state.

    from reconciler.failover.checkpoint.clone import clone

    done = clone("/data/checkpoints/clicks", "/data/checkpoints/clicks-b", "clicks.plan.json")

Then start the query on the new path, with the destination's servers and topics: its next batch begins at the plan's
offsets. The query's id, the commits and the state stay the same bytes. Plain Python: needs no pyspark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike, fspath

from reconciler import __version__, written
from reconciler.clock import stamp
from reconciler.config.file import Config
from reconciler.core.anchors import encodable
from reconciler.core.errors import ConfigError, Refused
from reconciler.core.json_fields import FieldError
from reconciler.core.text import counted
from reconciler.failover.checkpoint.translate import Translation, refuse_undecided
from reconciler.failover.checkpoint.verify import Placed, first_anchors, place, unproven, verify
from reconciler.failover.outside import Outside
from reconciler.places.checkpoint.copying import Copied, copy_tree
from reconciler.places.checkpoint.files import Listed, Tree, changed, is_own, older_state, repeated_state, side_files
from reconciler.places.checkpoint.log import rewritten
from reconciler.places.checkpoint.reading import MANIFEST, anchors_field, read_checkpoint
from reconciler.places.checkpoint.restart import END, Checkpoint, LateLog, without_id
from reconciler.plan.document import JobPlan, Plan

FORMAT = "reconciler.checkpoint-clone/1"


@dataclass(frozen=True, slots=True)
class Edit:
    """One rewritten file."""

    file: str
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True)
class Clone:
    """A finished copy. ``batch``: the number of the batch that a restart runs.

    ``repeats``: that batch was begun before. ``repeats_empty``: it gets no records; ``repeats_in_part``: it gets those
    of the partitions whose end is known at the destination. Up to ``repeated_at_most`` records that it may have written
    come again in the batches after it: records behind an end that is not known, and records that a mirror sent twice.
    ``replay_at_most``: records that will be read again, as the plan says, into the state as well.
    ``behind``: the query may have written more than its log said, which comes again, too.
    ``sources`` were moved, ``kept`` were not; of ``later``, which are some of these, the batch's records come in the
    next one. ``copied``: how many files and bytes; ``older``: files of state that no restart reads any more, which are
    not in the copy. ``sinks``: how many of the job's it was compared with. ``added``: entries of the offset log that
    the original lacks. ``notes``: what is odd about the original, as sentences without full stops.
    """

    path: str
    new_path: str
    query_id: str | None
    batch: int
    repeats: bool
    repeats_empty: bool
    repeated_at_most: int
    replay_at_most: int
    sources: tuple[str, ...]
    kept: tuple[str, ...]
    edits: tuple[Edit, ...]
    left_out: tuple[str, ...]
    later: tuple[str, ...] = ()
    copied: Copied | None = None
    older: int = 0
    behind: LateLog | None = None
    sinks: int = 0
    repeats_in_part: bool = False
    added: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """Facts about the start on the copy that are not in the plan, as sentences without their full stops."""
        later = f"; its records of batch {self.batch} come in the next one"
        found = [
            f"source {name} is unchanged: the plan's job has none of its topics{later if name in self.later else ''}"
            for name in self.kept
        ]
        found += self.notes
        if self.behind is not None:
            found.append(self.behind.words())
        if self.repeated_at_most:
            found.append(
                f"up to {counted(self.repeated_at_most, 'record')} of batch {self.batch}, which it may have written "
                "before the stop, come again in later batches"
            )
        return found


def clone(
    path: str | PathLike[str],
    new_path: str | PathLike[str],
    plan: Plan,
    *,
    config: Config,
    outside: Outside,
    job: str | None = None,
) -> Clone:
    """Copy the checkpoint at ``path`` to ``new_path``, to continue at the plan's offsets.

    Paths are local, or URLs that fsspec opens. ``config``: for the move that the plan is about. ``job`` None: the
    plan's only one.

    Raises NeedsPerson if a partition must not start, Changed if the plan has expired, or the checkpoint or the
    destination has changed since, ConfigError if the new path is taken or the job's topics do not fit, Refused for
    content that is not understood, Unreachable, and OutcomeUnknown if the last step's answer was lost.
    """
    chosen = plan.job(job)
    chosen = chosen.under(config.own_policy(chosen.name))
    refuse_undecided(chosen, config.policy.start)
    original, target = _Original.read(fspath(path), fspath(new_path))
    placed = place(original.found, original.path, chosen, config, outside)
    verify(plan, placed.job, config, outside)
    first = first_anchors(config, placed.job, plan.cluster_id, outside)
    made, older = original.copy_of(placed, target)
    manifest = _manifest(made, plan, placed.job, stamp(outside.now_ms()), anchors_field(first))
    with written.writing(target.shown):
        copied = copy_tree(
            original.tree,
            target,
            original.listed,
            leave_out=older.union(made.left_out),
            instead={edit.file: edit.after for edit in made.edits} | original.added_to(made) | {MANIFEST: manifest},
            barrier=f"offsets/{original.found.last.batch + 1 if original.found.last else 0}",
            still=lambda: original.refuse_changed(made.edits),
            on_copied=outside.on_copied,
        )
    return replace(made, copied=copied)


# ---------------------------------------------------------------- the original


@dataclass(frozen=True, slots=True)
class _Original:
    """The content of the checkpoint at ``path``, which must not change until its copy is complete."""

    path: str
    tree: Tree
    listed: Listed
    found: Checkpoint

    @classmethod
    def read(cls, path: str, new_path: str) -> tuple[_Original, Tree]:
        """The original, and the place of its copy. Raises ConfigError, Refused and Unreachable for either."""
        tree, target = Tree(path), Tree(new_path)
        _refuse_unfit(tree, target)
        return cls(path, tree, tree.listing(), read_checkpoint(path)), target

    def copy_of(self, placed: Placed, target: Tree) -> tuple[Clone, frozenset[str]]:
        """The copy that is to be made, and the files of older state, which are not in it."""
        found, moved, files = self.found, placed.translation, self.listed.files
        edits = tuple(_edits_of(self.tree, moved))
        repeated = repeated_state(files, found.next_batch)
        added = (f"offsets/{found.last.batch - 1}",) if found.last is not None and found.lacks_entry_before else ()
        changed_files = (*(edit.file for edit in edits), *added, MANIFEST)
        stale = {MANIFEST, *(side for name in changed_files for side in side_files(name))}
        older = older_state(files.keys() - repeated, found.next_batch)
        made = Clone(
            path=self.tree.shown,
            new_path=target.shown,
            query_id=found.query_id,
            batch=found.next_batch,
            repeats=found.repeats_a_batch,
            repeats_empty=moved.repeats_empty,
            repeats_in_part=not moved.repeats_empty and unproven(found, moved, placed.job) > 0,
            repeated_at_most=placed.repeated_at_most,
            replay_at_most=sum(row.replay_at_most or 0 for row in placed.job.partitions if row.position != END),
            sources=moved.sources,
            kept=moved.kept,
            later=moved.later,
            edits=edits,
            left_out=tuple(sorted(repeated.union(stale.intersection(files)))),
            older=len(older),
            behind=found.behind,
            sinks=placed.sinks,
            added=added,
            notes=tuple(self._notes()),
        )
        return made, older

    def _notes(self) -> Iterator[str]:
        if self.found.query_id is None:
            yield f"{self.path} {without_id(begun=self.found.last is not None)}; so does the copy"
        if self.found.lacks_entry_before:
            yield self.found.missing_words("the copy has it")

    def added_to(self, made: Clone) -> dict[str, bytes]:
        """The entries that the copy has in addition: each is the one from which the next batch starts.

        So the copy starts, and at the same offsets, whether its query has asynchronous progress tracking or not.
        """
        entry = self.found.starts_at
        if entry is None or not made.added:
            return {}
        name = f"offsets/{entry.batch}"
        after = {edit.file: edit.after for edit in made.edits}
        return dict.fromkeys(made.added, after.get(name) or self.tree.read(name))

    def refuse_changed(self, edits: Iterable[Edit]) -> None:
        """Raise Changed if a file has changed since it was read."""
        before, now = self.listed.files, self.tree.listing().files
        for name in filter(is_own, sorted({*before, *now})):
            if before.get(name) != now.get(name):
                change = "appeared" if name not in before else "is gone" if name not in now else "was written"
                raise changed(self.tree, f"{name} {change}")
        for edit in edits:
            if self.tree.read(edit.file) != edit.before:
                raise changed(self.tree, f"{edit.file} was written")


def _refuse_unfit(source: Tree, target: Tree) -> None:
    for tree in (source, target):
        if not encodable(tree.shown):  # the copy's manifest names the original
            raise ConfigError(f"The path {tree.shown!a} is not UTF-8.", hint="Give the folder another name.")
    here, there = source.root, target.root
    if source.may_share_files_with(target) and (
        f"{there}/".startswith(f"{here}/") or f"{here}/".startswith(f"{there}/")
    ):
        raise ConfigError(
            f"{target.shown} and {source.shown} are one folder, or one is in the other.",
            hint="Give the copy a path of its own: the original is not changed.",
        )
    if not target.is_empty():
        raise ConfigError(
            f"{target.shown} exists already.",
            hint="Delete it if checkpoint show calls it unfinished.",
        )


def _edits_of(source: Tree, moved: Translation) -> Iterator[Edit]:
    """The files of the checkpoint that the translation changes. Raises Refused for one that cannot be rewritten."""
    for file, texts in moved.edits.items():
        before = source.read(file)
        try:
            yield Edit(file, before, rewritten(file, before, texts))
        except FieldError as err:
            raise Refused(
                f"The checkpoint file {source.shown}/{file} cannot be rewritten: {err}.", hint="Restore the checkpoint."
            ) from err


# ---------------------------------------------------------------- the manifest


def _manifest(made: Clone, plan: Plan, job: JobPlan, at: str, anchors: list[dict[str, object]]) -> bytes:
    content = {
        "format": FORMAT,
        "tool_version": __version__,
        "created_at": at,
        "from": made.path,
        "query_id": made.query_id,
        "batch": made.batch,
        "repeats": made.repeats,
        "repeats_empty": made.repeats_empty,
        "plan": {"sha256": plan.sha256, "created_at": plan.created_at, "job": job.name},
        "destination": {"bootstrap_servers": plan.bootstrap_servers, "cluster_id": plan.cluster_id},
        "replay_at_most": made.replay_at_most,
        "sources": list(made.sources),
        "kept": list(made.kept),
        "anchors": anchors,
        "changed": [
            {"file": edit.file, "before": edit.before.decode(), "after": edit.after.decode()} for edit in made.edits
        ],
        "added": list(made.added),
        "left_out": list(made.left_out),
        "older_state_left_out": made.older,
    }
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()
