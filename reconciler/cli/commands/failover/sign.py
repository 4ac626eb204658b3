"""``reconciler sign``: a person's signature under a plan, after a look at it."""

from __future__ import annotations

import argparse
from pathlib import Path

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import Help
from reconciler.cli.terminal.prompts import confirm
from reconciler.cli.terminal.report import plan_text
from reconciler.cli.terminal.table import wants_colour, width
from reconciler.clock import clock_ms, stamp
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.trust import signing

EXAMPLE = "reconciler sign failover.plan.json --key ada.pem"
HELP = Help(
    "Shows a plan, asks, and puts a signature of its file into PLAN.sig beside it. Signatures that are there stay: "
    "several people can sign. Where the configuration says [trust] require_signature, apply asks for it.",
    [
        ("sign a plan that somebody else has made", EXAMPLE),
        (
            "keep a signature that openssl or a hardware token has made",
            "reconciler sign failover.plan.json --signature plan.sig.bin --public-key ada.pub.pem",
        ),
    ],
    exits={
        ExitCode.OK: "signed",
        ExitCode.USAGE: "a key that cannot be used, or not confirmed",
        ExitCode.CHANGED: "the plan was altered, or a signature that is there does not fit",
    },
    environment={context.PASSPHRASE: "the key's passphrase, if it has one; else it is asked for"},
    files={"PLAN.sig": "the signatures (reconciler.signatures/1)"},
    see_also=("reconciler verify", "docs/how-to/trusted-plans.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help="a file made by reconciler plan")
    parser.add_argument("-c", "--config", metavar="FILE", type=Path, help="show it by this configuration's [policy]")
    parser.add_argument("--key", metavar="FILE", type=Path, help="the private key (Ed25519, PEM)")
    parser.add_argument("--signature", metavar="FILE", type=Path, help="64 bytes that were made elsewhere")
    parser.add_argument("--public-key", metavar="FILE", type=Path, help="the key that made them")
    arguments.add_yes(parser)


def run(options: argparse.Namespace) -> ExitCode:
    if (options.key is None) == (options.signature is None) or (options.signature is None) != (
        options.public_key is None
    ):
        raise ConfigError("Give either --key, or --signature and --public-key.", hint="See reconciler sign --help.")
    plan, content = context.read_plan_file(options.plan)
    policy = context.start_policy(options)
    print(plan_text(plan, policy, columns=width(), colour=wants_colour()))
    if stamp(clock_ms()) >= plan.expires_at:
        print(f"It expired at {plan.expires_at}: apply refuses it, signed or not; rollback does not.")
    if options.key is None:
        made = signing.made_elsewhere(options.signature, options.public_key)
        confirm("Keep this signature of the plan?", yes=options.yes)
        signer = signing.add(options.plan, content, plan.sha256, made)
    else:
        key = context.private_key(options.key)
        confirm("Sign this plan?", yes=options.yes)
        signer = signing.sign(options.plan, content, plan.sha256, key)
    print(f"\nSigned with key {signer.key_id}: {signing.path_for(options.plan)}")
    return ExitCode.OK
