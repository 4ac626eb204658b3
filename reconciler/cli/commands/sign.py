"""Shows a plan, asks, and writes a signature of its file to PLAN.sig beside it, in place of any other signature. If the
configuration has [trust] require_signature, apply requires one by a trusted key.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import OPTIONAL_CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import confirm, say, show
from reconciler.cli.terminal.report import plan_text
from reconciler.clock import clock_ms, stamp
from reconciler.core.errors import ExitCode
from reconciler.plan import signing

EXAMPLE = "reconciler sign failover.plan.json --key ada.pem"
HELP = Help(
    __doc__,
    [("sign a plan that a colleague has made", EXAMPLE)],
    exits={
        ExitCode.OK: "signed",
        ExitCode.USAGE: "an unusable key, or not confirmed",
        ExitCode.CHANGED: "the plan was altered",
    },
    environment={
        context.PASSPHRASE: "the key's passphrase, if it has one (default: a prompt)",
        **OPTIONAL_CONFIG_ENVIRONMENT,
    },
    files={"PLAN.sig": "the signature (reconciler.signature/1)"},
    see_also=("reconciler show", "docs/how-to/trusted-plans.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_plan(parser)
    arguments.add_optional_config(parser, "apply this configuration's [policy] to the table")
    parser.add_argument("--key", metavar="FILE", type=Path, required=True, help="the private key (Ed25519, PEM)")
    arguments.add_yes(parser)


def run(options: argparse.Namespace) -> ExitCode:
    plan, content = context.read_plan_file(options.plan)
    config = context.config_if_named(options)
    policy = plan.policy if config is None else config.policy.start
    show(plan_text(plan if config is None else plan.under(config.own_policy), policy))
    if stamp(clock_ms()) >= plan.expires_at:
        say(f"This plan expired at {plan.expires_at}: apply refuses it, signed or not.")
    key = context.private_key(options.key)
    confirm("Sign this plan?", yes=options.yes)
    signature = signing.sign(options.plan, content, plan.sha256, key)
    say("", f"Signed with key {signature.key_id}: {signing.path_for(options.plan)}")
    return ExitCode.OK
