"""Writes a plan's offsets into the jobs' stores. It checks the destination and the stores again, shows each stored
offset beside the new one, and asks. Then it writes one job after the other: it keeps the job's plan in the state store,
writes each row only if it has not changed, reads all rows back, and records where the job lives. It is safe to repeat:
it finishes a run that was killed, and skips a job that the plan has moved.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from reconciler import written
from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import Shown, confirm, say, show, stack, wrap
from reconciler.cli.terminal.report import skips_text, verdict_text
from reconciler.cli.terminal.table import Cell, count_cell, partition_cell, render
from reconciler.config.file import Config, Job
from reconciler.core.errors import Changed, ExitCode, NeedsPerson, OutcomeUnknown, ReconcilerError
from reconciler.core.text import command, counted
from reconciler.failover import inputs
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import JobChanges, Refusal, check_still, check_writable, prepare, write
from reconciler.failover.writing.moves import Copied, carry_out, finish, numbers_of, replaced_in_copy
from reconciler.failover.writing.plan_checks import check_stores
from reconciler.jobs.hook.checkpoint import original_of
from reconciler.places.registry import traits
from reconciler.plan import signing
from reconciler.plan.document import Plan
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location, Phase

MOST_REFUSED = 20
"""At most so many partitions that stop a job are named."""
EXAMPLE = "reconciler apply failover.plan.json -c reconciler.toml"
HELP = Help(
    __doc__,
    [
        ("review, confirm, write", EXAMPLE),
        ("review only", f"{EXAMPLE} --dry-run"),
        ("without the job whose store is unreachable", f"{EXAMPLE} --job clicks --job orders"),
        ("in a script, without a prompt", f"{EXAMPLE} --yes"),
    ],
    {
        ExitCode.OK: "written and read back, or there was nothing to write",
        ExitCode.USAGE: "usage or configuration, or not confirmed: nothing was written",
        ExitCode.NEEDS_PERSON: "a job was refused: a partition needs a decision, a row cannot be read, or the plan "
        "could not judge it; the other jobs were written",
        ExitCode.CHANGED: "",
        ExitCode.UNREACHABLE: "",
        ExitCode.UNKNOWN_OUTCOME: "",
    },
    environment=CONFIG_ENVIRONMENT,
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
    done = _finish(config, chosen, plan, options)
    if done and len(done) == len(chosen.jobs):
        print_not_judged(chosen)
        refuse_the_rest([], chosen)
        return ExitCode.OK
    chosen = replace(chosen, jobs=tuple(job for job in chosen.jobs if job.name not in done))
    config = inputs.for_plan(config, chosen)
    print_not_judged(chosen)
    changes = _apply(plan, chosen, config, options)
    say_left_alone(plan, chosen)
    refuse_the_rest([change for change in changes if not _is_copied(change)], chosen)
    return ExitCode.OK


def _finish(config: Config, chosen: Plan, plan: Plan, options: argparse.Namespace) -> set[str]:
    """The jobs that this plan has moved, also in an earlier run. It writes now what a killed run left unwritten.

    Raises Changed if another plan is being written.
    """
    found: set[str] = set()
    directed = inputs.for_plan(config, chosen)
    jobs = directed.chosen(*chosen.names)
    states = inputs.job_states(directed, jobs)
    for job in jobs:
        state = states[job.name]
        here = state.location()
        if here is None or here.plan is None or here.phase is Phase.MOVING:
            continue
        is_this = state.plan(here.plan).digest == plan.sha256
        if here.phase is Phase.LIVES:
            if is_this:
                say(f"{job.name}: this plan was applied before; it lives on {here.cluster}.")
                found.add(job.name)
            continue
        if traits(job.store).corrected_in_copy:
            continue
        if not is_this or options.dry_run:
            by = "this" if is_this else "another"
            cancel = command("reconciler", "move", "-c", options.config, "--cancel", "--job", job.name)
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


def _apply(plan: Plan, chosen: Plan, config: Config, options: argparse.Namespace) -> Sequence[JobChanges]:
    """The changes that were written, or would be, in a dry run. ``chosen``: the jobs of the plan to apply."""
    with context.outside(config) as outside:
        check_stores(chosen, config, outside)
        seen = inputs.locations_of(config, config.chosen(*chosen.names))
        changes = prepare(chosen, config, outside)
        show(changes_text(changes))
        writing = [change for change in changes if _begins_a_stay(change, config)]
        count = sum(len(change.intended) for change in writing)
        if options.dry_run:
            say(f"Dry run: {counted(count, 'offset')} would be written, nothing was.")
            return changes
        if not writing:
            _say_right(changes, chosen)
            return changes
        confirm(_question(count, len([change for change in writing if _is_copied(change)])), yes=options.yes)
        if not options.yes:
            check_still(changes, chosen, config, outside)
        check_writable(writing, outside)
        _write(writing, plan, config, seen, outside, options)
        if count:
            say(f"{counted(count, 'offset')} written and read back.")
        if by_job := [change.job.name for change in writing if change.is_by_job]:
            say(f"Start {', '.join(by_job)} by the hook: it begins at the plan's offsets, and stores its own itself.")
        names = [word for change in writing for word in ("--job", change.job.name)]
        say(f"To undo: {command('reconciler', 'rollback', '-c', options.config, *names)}")  # one line, to be copied
    return changes


def _begins_a_stay(change: JobChanges, config: Config) -> bool:
    """True for a move, even if no offset changes, and for a correction where the job lives."""
    if _is_copied(change):
        return True
    return not change.is_refused and (bool(change.intended) or not change.job.moved)


def _is_copied(change: JobChanges) -> bool:
    """True if the job continues in a copy of its checkpoint."""
    return change.refusal is Refusal.COPIED and change.is_refused


def _question(offsets: int, copies: int) -> str:
    what = [counted(offsets, "offset")] if offsets else []
    what += [counted(copies, "copied checkpoint")] if copies else []
    return f"Write {' and '.join(what)}?" if what else "Record the move?"


def _write(
    writing: Sequence[JobChanges],
    plan: Plan,
    config: Config,
    seen: Mapping[str, Location | None],
    outside: Outside,
    options: argparse.Namespace,
) -> None:
    """Write one job after the other, also after a failure. ``seen``: where the jobs lived when the changes were shown.

    Raises the first failure; OutcomeUnknown if other jobs were written.
    """
    written.intend(*(change.shown for change in writing if not (change.is_by_job or _is_copied(change))))
    failed: list[ReconcilerError] = []
    mark = inputs.stamp_now("apply")
    states = inputs.job_states(config, [change.job for change in writing])
    for change in writing:
        state = states[change.job.name]
        try:
            if _is_copied(change):
                _copy(change.job, plan, config, state, outside, options)
            else:
                write(change, plan, config, state, outside, mark, seen=seen[change.job.name])
        except ReconcilerError as error:
            if len(writing) > 1:
                error.message = f'Job "{change.job.name}" was not written: {error.message}'
            failed.append(error)
    if len(failed) < len(writing) and failed and not isinstance(failed[0], OutcomeUnknown):
        raise OutcomeUnknown(f"Other jobs were written. {failed[0].message}", hint=failed[0].hint or "Run this again.")
    if failed:
        raise failed[0]


def _copy(job: Job, plan: Plan, config: Config, state: JobState, outside: Outside, options: argparse.Namespace) -> None:
    """Copy the job's checkpoint to the plan's offsets, and record that it continues in the copy."""
    base = context.read_config(options).chosen(job.name)[0]
    original = original_of(base, job)
    assert original is not None, "only a checkpoint is refused as COPIED"

    def copied() -> str:
        with written.writing(f'a copy of the checkpoint of job "{job.name}"'):
            return original.copied(config, job, plan, outside)

    here = state.location()
    replaced = replaced_in_copy(plan, config, job, outside)
    numbers = numbers_of(plan, job, config, 1 if here is None else here.stay, replaced)
    now = carry_out(state, config, job, numbers, Copied(copied), inputs.stamp_now("apply"))
    say(f"{job.name} continues in {now.checkpoint} when its hook starts it next.")


def _say_right(changes: Sequence[JobChanges], chosen: Plan) -> None:
    if not any(change.is_refused for change in changes):
        of_some = f" of {', '.join(job.name for job in chosen.jobs)}" if chosen.not_judged else ""
        say(f"Nothing to write: every offset{of_some} is right where the job will look.")


def say_left_alone(plan: Plan, chosen: Plan) -> None:
    if others := [name for name in plan.names if name not in chosen.names]:
        show(wrap(f"Left alone: {', '.join(others)}."))


def changes_text(changes: Sequence[JobChanges]) -> Shown:
    """Each stored offset, the row that is replaced, the new offset and what it rests on; or why a job is refused."""
    lines: list[Shown] = []
    for change in changes:
        if change.refusal is Refusal.COPIED:
            offsets = counted(len(change.refused), "offset")
            lines.append(wrap(f"{change.job.name}: {offsets} to correct, in a copy of its checkpoint."))
            continue
        for row, why in change.refused[:MOST_REFUSED]:
            name = str(row.key)
            lines.append(wrap(f"{change.job.name}: {name} ({row.finding.value}) must not start: {why}."))
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
