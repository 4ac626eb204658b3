"""Shows where each job lives, and what its hook does at its next start, as the state store records it. Contacts no
cluster, and writes nothing. --history shows who moved it, when, and by which plan. The last line names the folder in
which hooks keep their plans.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import say, show_json
from reconciler.cli.terminal.table import Cell, print_table
from reconciler.clock import stamp
from reconciler.config.file import Config, Job
from reconciler.core.errors import ExitCode, ReconcilerError, worst
from reconciler.failover import inputs
from reconciler.jobs.hook import kept
from reconciler.jobs.hook.where import place_of
from reconciler.state import locations
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location, Phase

HELP = Help(
    __doc__,
    [
        ("where is each job?", "reconciler status -c reconciler.toml"),
        ("who moved it?", "reconciler status -c reconciler.toml --job clicks --history"),
    ],
    {
        ExitCode.OK: "every chosen job's location is shown",
        ExitCode.USAGE: "",
        ExitCode.UNREACHABLE: "the state store could not be reached, or is not there",
    },
    environment={**CONFIG_ENVIRONMENT, "RECONCILER_PLANS": "the folder of plans, if hooks have no --plans"},
    see_also=("reconciler move", "reconciler hook"),
)
PHASES = {Phase.LIVES: "lives", Phase.MOVING: "moving", Phase.WRITING: "writing"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    arguments.add_jobs(parser)
    arguments.add_format(parser)
    parser.add_argument("--history", action="store_true", help="show all entries of each job, oldest first")


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_config(options)
    jobs = config.chosen(*options.job)
    states = inputs.job_states(config, jobs)
    if options.format == "json":
        show_json({job.name: [locations.dump(each) for each in states[job.name].history()] for job in jobs})
        return ExitCode.OK
    if options.history:
        return _history(states)
    rows, codes = [], [ExitCode.OK]
    for job in jobs:
        try:
            rows.append([Cell(text) for text in _row(config, job, states[job.name].location())])
        except ReconcilerError as error:
            rows.append([Cell(text) for text in (job.name, "?", "-", "-", str(error))])
            codes.append(error.exit_code)
    print_table(("JOB", "LIVES ON", "STAY", "SINCE", "NEXT START"), rows, right=frozenset({2}))
    say(f"This user's hooks keep their plans on this machine in {kept.path_of(None)}.")
    return worst(codes)


def _row(config: Config, job: Job, here: Location | None) -> tuple[str, ...]:
    place = place_of(replace(config, jobs=(job,)), job, here)  # without the others, of which there may be hundreds
    if here is None:
        return (job.name, "not recorded", "-", "-", f"on {place.cluster}, if its place holds no offsets yet")
    since = f"{stamp(here.at_ms)} by {here.by}"
    if here.phase is Phase.WRITING:
        return (job.name, here.cluster, str(here.stay), since, f"finishes the move to {here.to}")
    if here.phase is Phase.MOVING:
        return (job.name, here.cluster, str(here.stay), since, f"moves to {here.to}")
    copy = "" if here.checkpoint is None else f", in {here.checkpoint}"
    return (job.name, here.cluster, str(here.stay), since, f"on {place.cluster}{copy}")


def _history(states: dict[str, JobState]) -> ExitCode:
    rows = [
        [
            Cell(text)
            for text in (
                name,
                stamp(each.at_ms),
                PHASES[each.phase],
                each.cluster if each.to is None else f"{each.cluster} to {each.to}",
                str(each.stay),
                "-" if each.plan is None else str(each.plan),
                each.by,
                each.why or "-",
            )
        ]
        for name, state in states.items()
        for each in state.history()
    ]
    print_table(("JOB", "AT", "STATE", "CLUSTER", "STAY", "PLAN", "BY", "WHY"), rows, right=frozenset({4, 5}))
    return ExitCode.OK
