"""``reconciler verify``: whether a plan is as it was made, and who has signed it."""

from __future__ import annotations

import argparse
from pathlib import Path

from reconciler.cli import context
from reconciler.cli.terminal.help import Help
from reconciler.clock import clock_ms, stamp
from reconciler.config.settings import TrustSettings
from reconciler.core.errors import ExitCode
from reconciler.formats.plan import Plan
from reconciler.trust import signing

EXAMPLE = "reconciler verify failover.plan.json -c reconciler.toml"
HELP = Help(
    "Says whether a plan's file is as it was made, and whose keys have signed it. With a configuration: whether apply "
    "would be content with the signatures. Reads only files.",
    [
        ("as apply will see it", EXAMPLE),
        ("by keys of your own", "reconciler verify failover.plan.json --trust ada.pub.pem --trust ben.pub.pem"),
    ],
    exits={
        ExitCode.OK: "it is as it was made, and signed as is asked for",
        ExitCode.USAGE: "usage or configuration, or a key that cannot be used",
        ExitCode.CHANGED: "it was altered, or a signature does not fit or is missing",
    },
    see_also=("reconciler sign", "docs/how-to/trusted-plans.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help="a file made by reconciler plan")
    parser.add_argument("-c", "--config", metavar="FILE", type=Path, help="go by this configuration's [trust]")
    parser.add_argument(
        "--trust",
        metavar="FILE",
        action="append",
        default=[],
        help="ask for a signature of this public key, whatever [trust] says (repeatable: each of them)",
    )


def run(options: argparse.Namespace) -> ExitCode:
    trust = context.read_config(options).trust if options.config else TrustSettings()
    if options.trust:
        trust = TrustSettings(
            require_signature=True, signatures=len(set(options.trust)), trusted_keys=tuple(options.trust)
        )
    plan, content = context.read_plan_file(options.plan)
    print(f"plan      {options.plan}, sha256 {plan.sha256}: as it was made")
    print(f"made      {plan.created_at} by version {plan.tool_version}, for cluster {plan.cluster_id}")
    print(f"good      until {plan.expires_at}{_over(plan)}")
    signers = signing.signers_of(options.plan, content, plan.sha256, trust)
    for signer in signers:
        print(f"signed    by {signer.name or 'a key that is not trusted'}, key {signer.key_id}")
    if not signers:
        print("signed    by nobody")
    signing.check(options.plan, content, plan.sha256, trust)
    if trust.require_signature:
        print(f"asked for {trust.signatures} of {len(set(trust.trusted_keys))} trusted keys: it is there")
    return ExitCode.OK


def _over(plan: Plan) -> str:
    return ", which is over" if stamp(clock_ms()) >= plan.expires_at else ""
