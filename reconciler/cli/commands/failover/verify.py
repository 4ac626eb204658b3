"""``reconciler verify``: whether a plan is unaltered, and who has signed it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import OPTIONAL_CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import say
from reconciler.clock import clock_ms, stamp
from reconciler.config.settings import TrustSettings
from reconciler.core.errors import ExitCode
from reconciler.trust import signing

EXAMPLE = "reconciler verify failover.plan.json -c reconciler.toml"
HELP = Help(
    "Reports whether a plan's checksum fits, and whose keys have signed the file. A checksum finds accidents; only a "
    "signature shows who made a plan, and that it is unaltered. With a configuration: whether apply would accept the "
    "signatures. Reads only files.",
    [
        ("by the rules that apply follows", EXAMPLE),
        ("by given keys", "reconciler verify failover.plan.json --trust ada.pub.pem --trust ben.pub.pem"),
    ],
    exits={
        ExitCode.OK: "unaltered, with the required signatures",
        ExitCode.USAGE: "usage or configuration, or an unusable key",
        ExitCode.CHANGED: "altered, or a signature is not valid or missing",
    },
    environment=OPTIONAL_CONFIG_ENVIRONMENT,
    see_also=("reconciler sign", "docs/how-to/trusted-plans.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_plan(parser)
    arguments.add_optional_config(parser, "apply this configuration's [trust]")
    arguments.add_repeatable(
        parser, "--trust", "require a signature by this public key instead of [trust]; all of them", "FILE", type=Path
    )


def run(options: argparse.Namespace) -> ExitCode:
    trust = _trust(options)
    plan, content = context.read_plan_file(options.plan)
    say(f"plan      {options.plan}, sha256 {plan.sha256}: its checksum fits")
    say(f"made      {plan.created_at} by version {plan.tool_version}, for cluster {plan.cluster_id}")
    word = "expired" if stamp(clock_ms()) >= plan.expires_at else "expires"
    say(f"{word}   at {plan.expires_at}")
    signers = signing.signers_of(options.plan, content, plan.sha256, trust or TrustSettings())
    for signer in signers:
        say(f"signed    by {signer.name or 'a key that is not trusted'}, key {signer.key_id}")
    if not signers:
        say("signed    no signatures: anyone who can write the file can have made or altered it")
    signing.check(options.plan, content, plan.sha256, trust or TrustSettings())
    if trust is None:
        say("required  not known: no configuration was named (-c FILE), so none said who must sign")
    elif trust.require_signature:
        say(f"required  {trust.signatures} of {len(signing.trusted(trust))} trusted keys: present")
    return ExitCode.OK


def _trust(options: argparse.Namespace) -> TrustSettings | None:
    """What the command line requires: each of the keys that it names, or what the configuration requires.

    None if it names neither.
    """
    if options.trust:
        keys = TrustSettings(trusted_keys=tuple(map(str, options.trust)))
        return replace(keys, require_signature=True, signatures=len(signing.trusted(keys)))
    config = context.config_if_named(options)
    return None if config is None else config.trust
