"""Shows a plan as a table, as the JSON for startingOffsets of Spark's Kafka source, or as one page to review and to
pass on. It reads only files. The table's second line says whether the plan is unaltered, and who signed it. The
checksum finds accidents; only a signature shows who made a plan, and that it is unaltered.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import OPTIONAL_CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import say, show, show_data, show_text, wrap
from reconciler.cli.terminal.report import plan_text
from reconciler.config.file import Config
from reconciler.core.errors import ExitCode, NeedsPerson
from reconciler.fileio import FileKind, refuse_unwritable, write_whole
from reconciler.plan import signing
from reconciler.plan.document import Plan, StartPolicy
from reconciler.plan.signing import Signer, TrustSettings
from reconciler.plan.start import why_stopped

PAGE = FileKind("an HTML page", re.compile(rb"(?:\xef\xbb\xbf)?\s*<!doctype html", re.IGNORECASE))
"""The only kind of file that a page replaces."""
EXAMPLE = "reconciler show failover.plan.json --starting-offsets"
HELP = Help(
    __doc__,
    [
        ("a table", "reconciler show failover.plan.json"),
        ("whether apply would accept its signature", "reconciler show failover.plan.json -c reconciler.toml"),
        ("for Spark's Kafka source", EXAMPLE),
        ("a page that needs no network", "reconciler show failover.plan.json --html plan.html"),
    ],
    {
        ExitCode.OK: "",
        ExitCode.USAGE: "there is no such file or job, an unusable key, or the partitions are not all of a topic's; "
        "with --starting-offsets: a topic's name holds a configured secret",
        ExitCode.NEEDS_PERSON: "the plan could not judge a job of --job; with --starting-offsets: a partition must not "
        "start, a sink forbids it, or the job is ambiguous",
        ExitCode.CHANGED: "the file is not a plan, or was altered, or its signature does not fit; for the table with a "
        "configuration: a signature that is not by a trusted key, or a required one that is missing",
    },
    environment={
        "NO_COLOR": "any value turns colours off",
        "COLUMNS": "the width of tables",
        **OPTIONAL_CONFIG_ENVIRONMENT,
    },
    see_also=("reconciler plan", "docs/reference/formats.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_plan(parser)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--starting-offsets", action="store_true", help="print the JSON for Spark's startingOffsets")
    ways.add_argument("--html", metavar="FILE", type=Path, help="write the plan as one page; - for stdout")
    arguments.add_repeatable(parser, "--job", "only this job of the plan", "NAME")
    arguments.add_optional_config(parser, "apply this configuration's [policy] and [trust]")


def run(options: argparse.Namespace) -> ExitCode:
    to_stdout = str(options.html) == "-"
    if options.html and not to_stdout:
        refuse_unwritable(options.html, replaces=PAGE)
    config = context.config_if_named(options)
    plan, content = context.read_plan_file(options.plan)
    policy = plan.policy if config is None else config.policy.start
    trust = TrustSettings() if config is None else config.trust
    signer = signing.signer_of(options.plan, content, plan.sha256, trust)
    named = plan.only(options.job)
    shown = named if config is None else named.under(config.own_policy)
    if options.starting_offsets:
        from reconciler.plan.start import planned_text

        _refuse_newly_stopped(named, shown, policy)
        offsets = planned_text(replace(shown, policy=policy), options.job)
        show_data(
            offsets + "\n", instead="Change the secret that is a topic's name, or let the job read the plan itself."
        )
        return ExitCode.OK
    if options.html:
        from reconciler.cli.page.advice import Files
        from reconciler.cli.page.page import page

        path = str(options.config) if options.config else Files().config
        text = page(shown, policy, sha256=plan.to_json()["sha256"], files=Files(str(options.plan), path))
        if to_stdout:
            show_text(text)
        else:
            write_whole(options.html, text)
            say(f"Written to {options.html}")
        return ExitCode.OK
    head = f"plan of {plan.created_at}, valid until {plan.expires_at}, for cluster {plan.cluster_id}"
    show(wrap(head, _signature_text(signer, config)))
    show(plan_text(shown, policy))
    signing.refuse_untrusted(options.plan, signer, trust)
    return ExitCode.OK


def _signature_text(signer: Signer | None, config: Config | None) -> str:
    """Whether the plan is unaltered, which its reader has checked, and who signed it."""
    if signer is None:
        return "unaltered by its checksum, and not signed: anyone who can write the file can have made it"
    if config is None:
        return f"unaltered, and signed with key {signer.key_id[:16]}; -c FILE also says whether that is trusted"
    return f"unaltered, and signed with {signer}" + ("" if signer.name is None else ", a trusted key")


def _refuse_newly_stopped(made: Plan, shown: Plan, policy: StartPolicy) -> None:
    """Raise NeedsPerson where the policy forbids a start that the one of the plan as it was made allows."""
    for before, job in zip(made.jobs, shown.jobs, strict=True):
        for was, row in zip(before.partitions, job.partitions, strict=True):
            if (why := why_stopped(row, policy)) and why_stopped(was, made.policy) is None:
                raise NeedsPerson(
                    f'Job "{job.name}" must not start: {row.key}: {why}.',
                    hint="The [policy] is the configuration's; the one that the plan was made with lets it start.",
                )
