"""Puts back what apply replaced, from the snapshot beside the plan. Rows that apply created are deleted. It asks
first, and writes nothing if a row is neither as apply left it nor as it was before, which means that another writer
has changed it. It shows what going back replays and skips; rows that skip records need --accept skips. Where plans
must be signed, it puts back only rows that the signed plan vouches for. An expired plan can be rolled back, too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from reconciler import written
from reconciler.cli import arguments, context
from reconciler.cli.commands.failover.apply import say_left_alone, trusted_plan
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import say, show, wrap
from reconciler.cli.terminal.prompts import confirm
from reconciler.cli.terminal.table import Cell, count_cell, partition_cell, print_table
from reconciler.config.file import Config
from reconciler.core.errors import Changed, ExitCode, NeedsPerson
from reconciler.core.visible import command
from reconciler.failover import inputs
from reconciler.failover.totals import skips_sum
from reconciler.failover.writing.moves import begin_back, done
from reconciler.failover.writing.rollback import JobReturns, Return, prepare_rollback, write_rollback
from reconciler.formats.decimal_text import counted
from reconciler.formats.plan import Plan, skips_words
from reconciler.hook.checkpoint import work_of
from reconciler.state.jobs import JobState
from reconciler.state.locations import Phase, Stamp
from reconciler.stores.registry import traits

EXAMPLE = "reconciler rollback failover.plan.json -c reconciler.toml"
HELP = Help(
    __doc__,
    [
        ("review, confirm, put back", EXAMPLE),
        ("not the job that has gone on since", f"{EXAMPLE} --job clicks --job orders"),
        ("in a script, without a prompt", f"{EXAMPLE} --yes"),
    ],
    {
        ExitCode.OK: "put back, or every row is as it was already",
        ExitCode.USAGE: "usage or configuration, not confirmed, or there is no snapshot: nothing was written",
        ExitCode.NEEDS_PERSON: "a row would skip records of the destination, or the plan could not judge a job of "
        "--job: nothing was written",
        ExitCode.CHANGED: "another writer changed a row, or plan or snapshot is altered, not signed, or for another "
        "configuration: nothing was written",
        ExitCode.UNREACHABLE: "",
        ExitCode.UNKNOWN_OUTCOME: "a write's outcome is unknown or partial: run rollback again",
    },
    environment=CONFIG_ENVIRONMENT,
    files={"PLAN.applied.json": "the snapshot that apply made"},
    see_also=("reconciler apply",),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_plan(parser, "the plan that was applied")
    arguments.add_config(parser)
    arguments.add_jobs_of_plan(parser)
    arguments.add_yes(parser)
    parser.add_argument(
        "--accept",
        dest="accepted",
        metavar="skips",
        action="append",
        default=[],
        choices=[arguments.SKIPS],
        help="skips: put back rows that skip records of the destination",
    )


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_config(options)
    plan = trusted_plan(config, options.plan, applied=True)
    chosen = plan.only(options.job)
    config = inputs.for_plan(config, chosen)
    states = [] if config.state is None else [inputs.job_state(config, job) for job in config.chosen(*chosen.names)]
    copied = [state for state in states if traits(config.chosen(state.job)[0].store).corrected_in_copy]
    if copied:
        _to_originals(copied, plan, config, options)
    if len(copied) < len(chosen.jobs):
        if copied:
            options.job = [name for name in chosen.names if name not in {state.job for state in copied}]
        _roll_back(plan, config, options, states)
    return ExitCode.OK


def _to_originals(states: Sequence[JobState], plan: Plan, config: Config, options: argparse.Namespace) -> None:
    """Let queries go on where they were before the plan's copies of their checkpoints were made.

    Raises Changed for a query that has run on its copy: what it has put out there would come again.
    """
    for state in states:
        here = state.location()
        copy = None if here is None else here.checkpoint
        if copy is not None and (work := work_of(copy)) is not None:
            move = command("reconciler", "move", "--to", plan.source_name, "--job", state.job)
            raise Changed(
                f'The query of job "{state.job}" has run on its copy {copy}: {work}.',
                hint=f"Take it back by a move: {move}",
            )
    confirm(f"Let {counted(len(states), 'job')} go on in the checkpoint before?", yes=options.yes)
    mark = inputs.stamp_now("rollback")
    for state in states:
        begun, before = begin_back(state, config, plan, mark)
        with written.writing(f'the location of job "{state.job}"'):
            done(state, begun, before, mark)
        say(f"{state.job}: lives on {begun.to} again, in {before or 'its checkpoint'}.")


def _roll_back(plan: Plan, config: Config, options: argparse.Namespace, states: Sequence[JobState]) -> None:
    with context.outside(config) as outside:
        jobs = prepare_rollback(plan, options.plan, config, outside, options.job)
        returns = [item for change in jobs for item in change.returns]
        mark = inputs.stamp_now("rollback")
        unended = [state for state in states if any(not each.returns and each.job.name == state.job for each in jobs)]
        unended = [state for state in unended if (here := state.location()) and here.phase is Phase.WRITING]
        if not returns:
            _end(unended, plan, config, mark)
            say("Nothing to put back: every row is as it was before the plan was applied.")
            if states and not unended:
                move = command("reconciler", "move", "--to", plan.source_name)
                say(f"Jobs that it moved: {move} takes them back.")
            say_left_alone(plan, plan.only(options.job))
            return
        _show(jobs)
        _refuse_skips(returns, options)
        confirm(f"Put back {counted(len(returns), 'offset')}?", yes=options.yes)
        _end(unended, plan, config, mark)
        names = [change.job.name for change in jobs if change.returns]
        begun = [(state, begin_back(state, config, plan, mark)) for state in states if state.job in names]
        write_rollback(jobs, plan, options.plan, config, outside)
        for state, (here, checkpoint) in begun:
            done(state, here, checkpoint, mark)
    say(f"{counted(len(returns), 'offset')} put back and read again.")
    say_left_alone(plan, plan.only(options.job))


def _end(states: Sequence[JobState], plan: Plan, config: Config, mark: Stamp) -> None:
    """Say where jobs live whose rows are back: a rollback was cut off after its last row, an apply before its first."""
    for state in states:
        done(state, *begin_back(state, config, plan, mark), mark)


def _show(jobs: Sequence[JobReturns]) -> None:
    """Each row now and as it was before, with what going back to it replays and skips."""
    is_counted = any(item.replay_at_most is not None for change in jobs for item in change.returns)
    rows = [
        (
            partition_cell(item.key),
            count_cell(item.now.stored.offset if item.now else None),
            count_cell(item.back_to.offset) if item.back_to else Cell("(no row)"),
            *((Cell(_replay(item)), Cell(_skips(item), "bad" if item.skips else None)) if is_counted else ()),
            Cell(change.job.name),
        )
        for change in jobs
        for item in change.returns
    ]
    heads = ("PARTITION", "NOW", "BACK TO", *(("REPLAY", "SKIPS") if is_counted else ()), "JOB")
    print_table(heads, rows, right=frozenset(range(1, len(heads) - 1)))
    if any(item.back_to is None for change in jobs for item in change.returns):
        show(wrap("(no row): there was none before apply made it; rollback removes it."))


def _replay(item: Return) -> str:
    return "-" if item.replay_at_most is None else f"≤ {item.replay_at_most:,}" if item.replay_at_most else "0"


def _skips(item: Return) -> str:
    return "-" if item.skips is None else skips_words(item.skips)


def _refuse_skips(returns: Sequence[Return], options: argparse.Namespace) -> None:
    """Raise NeedsPerson for rows that skip records, unless that was accepted."""
    total = skips_sum(item.skips for item in returns)
    if not total or arguments.SKIPS in options.accepted:
        return
    rows = counted(sum(item.skips is not None for item in returns), "row")
    raise NeedsPerson(
        f"Going back skips {total} after the offsets in place, in {rows}. Nothing was written.",
        hint="Make a new plan instead; or, if the job has processed those records, add --accept skips.",
    )
