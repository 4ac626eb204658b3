"""Writes a plan's offsets into the jobs' stores. It first checks the destination and the stores again, shows each
stored offset beside the new one, and asks. Then it saves a snapshot of the rows that it will replace, writes each
row only if it is still as it was read, and reads all of them back. It is safe to repeat: rows that are in place
already are left alone.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reconciler import written
from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import Shown, say, show, stack, wrap
from reconciler.cli.terminal.prompts import confirm
from reconciler.cli.terminal.report import skips_text, verdict_text
from reconciler.cli.terminal.table import Cell, count_cell, partition_cell, render
from reconciler.config.file import Config, Job
from reconciler.core.errors import Changed, ExitCode, NeedsPerson
from reconciler.core.visible import command
from reconciler.failover import inputs
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import JobChanges, check_still, prepare, replaced_by, write
from reconciler.failover.writing.moves import begin, done, finish, numbers_of, replaced_in_copy
from reconciler.failover.writing.plan_checks import check_stores
from reconciler.failover.writing.refusals import Refusal
from reconciler.fileio import refuse_unwritable
from reconciler.formats import snapshot
from reconciler.formats.decimal_text import counted
from reconciler.formats.plan import Plan
from reconciler.hook.checkpoint import of
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location, Phase, Stamp
from reconciler.state.plans import Numbers
from reconciler.stores.registry import traits
from reconciler.trust import signing

MOST_REFUSED = 20
"""Sentences on partitions that stop a job."""
EXAMPLE = "reconciler apply failover.plan.json -c reconciler.toml"
HELP = Help(
    __doc__,
    [
        ("review, confirm, write", EXAMPLE),
        ("review only", f"{EXAMPLE} --dry-run"),
        ("without the job whose store is away", f"{EXAMPLE} --job clicks --job orders"),
        ("in a script, without a prompt", f"{EXAMPLE} --yes"),
    ],
    {
        ExitCode.OK: "written and read back, or there was nothing to write",
        ExitCode.USAGE: "usage or configuration, or not confirmed: nothing was written",
        ExitCode.NEEDS_PERSON: "a job was refused: a partition needs a decision, a row of the source is dated far "
        "ahead, a row cannot be read, or the plan could not judge it; the other jobs were written",
        ExitCode.CHANGED: "",
        ExitCode.UNREACHABLE: "",
        ExitCode.UNKNOWN_OUTCOME: "",
    },
    environment=CONFIG_ENVIRONMENT,
    files={"PLAN.applied.json": "the snapshot that rollback puts back"},
    see_also=("reconciler rollback", "docs/how-to/move-jobs.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_plan(parser)
    arguments.add_config(parser)
    arguments.add_jobs_of_plan(parser)
    arguments.add_yes(parser)
    parser.add_argument("--dry-run", action="store_true", help="check again, show what would be written, and stop")


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_config(options)
    plan = trusted_plan(config, options.plan)
    chosen = plan.only(options.job)
    finished = _finish(config, chosen, plan, options)
    if finished and len(finished) == len(chosen.jobs):
        return ExitCode.OK
    chosen = replace(chosen, jobs=tuple(job for job in chosen.jobs if job.name not in finished))
    config = inputs.for_plan(config, chosen)
    print_not_judged(chosen)
    if not options.dry_run and not os.path.lexists(kept := snapshot.path_for(options.plan)):
        refuse_unwritable(kept, other="place for the plan")
    changes, count = _apply(plan, chosen, config, options)
    _say_result(changes, count, chosen, options)
    changes = [change for change in changes if not _is_copied(change, config)]
    say_left_alone(plan, chosen)
    refuse_the_rest(changes, chosen)
    return ExitCode.OK


def _finish(config: Config, chosen: Plan, plan: Plan, options: argparse.Namespace) -> set[str]:
    """Write what an earlier run of this plan was killed at: the jobs' names.

    Raises Changed if another plan is being written.
    """
    found: set[str] = set()
    if config.state is None:
        return found
    directed = inputs.for_plan(config, chosen)
    for job in directed.chosen(*chosen.names):
        state = inputs.job_state(directed, job)
        here = state.location()
        if here is None or here.phase is not Phase.WRITING or here.plan is None:
            continue
        is_this = state.plan(here.plan).digest == plan.sha256
        if traits(job.store).corrected_in_copy:
            continue
        if not is_this or options.dry_run:
            by = "this" if is_this else "another"
            cancel = command("reconciler", "move", "--cancel", "--job", job.name)
            raise Changed(
                f'The offsets of job "{job.name}" are being written by {by} plan. Nothing was written.',
                hint=f"Its hook finishes that. To take it back: {cancel}",
            )
        with context.outside(directed) as outside:
            finish(state, here, job, outside, inputs.stamp_now("apply"))
        say(f"{job.name}: an earlier run of this plan has begun to write its offsets. The others are written now.")
        found.add(job.name)
    return found


def print_not_judged(plan: Plan) -> None:
    for job in plan.not_judged:
        show(wrap(f"{job.name}: left alone, since it could not be judged when the plan was made: {job.reason}"))


def refuse_the_rest(changes: Sequence[JobChanges], plan: Plan) -> None:
    """Raise NeedsPerson for the jobs that were not written."""
    sentences = []
    for refusal in Refusal:
        if names := [change.job.name for change in changes if change.is_refused and change.refusal is refusal]:
            sentences += [f"Not written for {', '.join(names)}: {refusal}.", refusal.hint]
    if plan.not_judged:
        left_out = ", ".join(job.name for job in plan.not_judged)
        sentences.append(f"Not written for {left_out}, which could not be judged when the plan was made.")
        sentences.append("Do not start what was left out: fix the cause, then make another plan, with --job.")
    if sentences:
        raise NeedsPerson(sentences[0], hint=" ".join(sentences[1:]))


def trusted_plan(config: Config, path: Path, *, applied: bool = False) -> Plan:
    """The plan. Raises Changed if it was altered, or lacks a signature that the configuration requires."""
    plan, content = context.read_plan_file(path, applied=applied)
    if (signer := signing.check(path, content, plan.sha256, config.trust)) is not None:
        say(f"Signed by {signer}.")
    return plan


def _apply(plan: Plan, chosen: Plan, config: Config, options: argparse.Namespace) -> tuple[Sequence[JobChanges], int]:
    """The changes that were written (or would be, in a dry run), and the number of offsets.

    ``chosen``: the jobs of the plan to apply. The snapshot is the whole plan's.
    """
    with context.outside(config) as outside:
        check_stores(chosen, config, outside)
        changes = prepare(chosen, config, outside)
        show(changes_text(changes, makes_copies=config.state is not None))
        count = sum(len(change.intended) for change in changes)
        copies = [change for change in changes if _is_copied(change, config)]
        moves = _moves(changes, plan, config)
        if (count or moves or copies) and not options.dry_run:
            confirm(_question(count, len(copies)), yes=options.yes)
            if not options.yes:
                check_still(changes, chosen, config, outside)
            begun: list[Location] = []

            def begin_all() -> None:
                begun.extend(begin(state, config, job, numbers, mark) for state, job, numbers, mark in moves)

            write(changes, plan, options.plan, outside, on_writing=begin_all)
            for (state, *_, mark), here in zip(moves, begun, strict=True):
                done(state, here, here.checkpoint, mark)
            for change in copies:
                _copy(change.job, plan, config, outside, options)
    return changes, count


def _is_copied(change: JobChanges, config: Config) -> bool:
    """Whether the job goes on in a copy of its checkpoint, which a location can name."""
    return change.refusal is Refusal.COPIED and change.is_refused and config.state is not None


def _question(offsets: int, copies: int) -> str:
    what = [counted(offsets, "offset")] if offsets else []
    what += [counted(copies, "copied checkpoint")] if copies else []
    return f"Write {' and '.join(what)}?" if what else "Record the move?"


def _copy(job: Job, plan: Plan, config: Config, outside: Outside, options: argparse.Namespace) -> None:
    """Copy the job's checkpoint to the plan's offsets, and record the copy as the one that it goes on in."""
    base = context.read_config(options).chosen(job.name)[0]
    original = of(base, job)
    assert original is not None, "only a checkpoint is refused as COPIED"
    state, mark = inputs.job_state(config, job), inputs.stamp_now("apply")
    here = state.location()
    replaced = replaced_in_copy(plan, config, job, outside)
    here = begin(state, config, job, numbers_of(plan, job, config, 1 if here is None else here.stay, replaced), mark)
    with written.writing(f'a copy of the checkpoint of job "{job.name}"'):
        path = original.copied(config, job, plan, outside)
    done(state, here, path, mark)
    say(f"{job.name} goes on in {path}, at its next start by the hook.")


def _moves(changes: Sequence[JobChanges], plan: Plan, config: Config) -> list[tuple[JobState, Job, Numbers, Stamp]]:
    """The jobs that begin a stay by this plan: none without a [state] store."""
    if config.state is None:
        return []
    found, mark = [], inputs.stamp_now("apply")
    for change in changes:
        if change.is_refused:
            continue
        state = inputs.job_state(config, change.job)
        here = state.location()
        stays = here is not None and here.to is None and here.cluster == config.there
        if not stays or any(item.begins_a_stay for item in change.intended):
            stay = 1 if here is None else here.stay
            found.append(
                (
                    state,
                    change.job,
                    numbers_of(plan, change.job, config, stay, replaced_by([change], plan.cluster_id)),
                    mark,
                )
            )
    return found


def _say_result(changes: Sequence[JobChanges], count: int, chosen: Plan, options: argparse.Namespace) -> None:
    already = sum(len(change.already) for change in changes)
    if options.dry_run:
        say(f"Dry run: {counted(count, 'offset')} would be written, nothing was.")
    elif count:
        say(f"{counted(count, 'offset')} written and read back.")
        if by_job := [change.job.name for change in changes if change.is_by_job and change.intended]:
            say(f"Start {', '.join(by_job)} by the hook: it begins at the plan's offsets, and stores its own itself.")
        undo = command("reconciler", "rollback", options.plan, "-c", options.config)
        say(f"To undo: {undo}")  # one line, to be copied
    elif already:
        say(f"This plan was applied before: {counted(already, 'offset')} in place.")
    elif not any(change.is_refused for change in changes):
        of = f" of {', '.join(job.name for job in chosen.jobs)}" if chosen.not_judged else ""
        say(f"Nothing to write: every offset{of} is right where the job will look.")


def say_left_alone(plan: Plan, chosen: Plan) -> None:
    if others := [name for name in plan.names if name not in chosen.names]:
        show(wrap(f"Left alone: {', '.join(others)}."))


def changes_text(changes: Sequence[JobChanges], *, makes_copies: bool = False) -> Shown:
    """Each stored offset, the row that is replaced, the new offset and what it rests on; or why a job is refused."""
    lines: list[Shown] = []
    for change in changes:
        if change.refusal is Refusal.COPIED:
            offsets = counted(len(change.refused), "offset")
            if makes_copies:
                lines.append(wrap(f"{change.job.name}: {offsets} to correct, in a copy of its checkpoint."))
                continue
            lines.append(wrap(f"{change.job.name}: {offsets} to correct, not by apply: {change.refusal}."))
            continue
        for row, why in change.refused[:MOST_REFUSED]:
            name = str(row.key)
            lines.append(wrap(f"{change.job.name}: {name} ({row.verdict.value}) must not start: {why}."))
        if (more := len(change.refused) - MOST_REFUSED) > 0:
            lines.append(wrap(f"{change.job.name}: … and {more:,} more; `reconciler show PLAN` lists all."))
        skips = any(item.row.skips for item in change.intended)
        rows = [
            (
                partition_cell(item.key),
                count_cell(item.row.stored_offset),
                count_cell(item.prior.offset, "dim") if item.prior else Cell("(no row)", "dim"),
                count_cell(item.new.offset, "good"),
                Cell(verdict_text(item.row), "warn" if item.row.set_by_hand else None),
                *([Cell(skips_text(item.row), "warn")] if skips else []),
                Cell(change.job.name),
            )
            for item in change.intended
        ]
        if rows:
            heads = ("PARTITION", "STORED", "PRIOR", "NEW", "FINDING", *(["SKIPS"] if skips else []), "JOB")
            right = frozenset(range(1, len(heads) - 1)) - {heads.index("FINDING")}
            lines.append(render(heads, rows, right=right))
    if any(item.prior is None for change in changes for item in change.intended):
        lines.append(wrap("(no row): the store has none under the destination's name yet; apply makes it."))
    return stack(*lines)
