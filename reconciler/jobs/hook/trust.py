"""``[trust]`` for the hook, which makes a plan and applies it without a person in between.

Where plans must be signed, the hook signs its own with ``[trust] signing_key``: the signature says that this machine is
trusted to decide, not that a person has looked. Without such a key, it starts only jobs whose offsets are right, and
leaves the other plans to a person.

The imports stand where they are needed: most starts have nothing to correct and must be fast.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.core.errors import NeedsPerson
from reconciler.core.text import command

if TYPE_CHECKING:
    from reconciler.plan.document import Plan
    from reconciler.plan.ed25519 import PrivateKey
    from reconciler.plan.signing import TrustSettings


def ready(trust: TrustSettings) -> PrivateKey | None:
    """The key to sign with, if there is one. Raises ConfigError for a key that could not be used.

    Before every start, so that it is found out on an ordinary day; it costs nothing where no key is configured.
    """
    if trust.signing_key is None:
        return None
    from reconciler.plan import signing

    return signing.own_key(trust)


def signed(path: Path, plan: Plan, key: PrivateKey | None) -> None:
    """Sign the hook's plan, if there is a key: a job whose keys are named takes no other."""
    if key is not None:
        from reconciler.plan import signing

        signing.sign(path, plan.to_text().encode(), plan.sha256, key)


def waits_for_person(trust: TrustSettings, key: PrivateKey | None) -> bool:
    """True if a person must sign the hook's plan before anything is written."""
    return trust.require_signature and key is None


def require_signature(
    trust: TrustSettings, plan: Plan, path: Path, key: PrivateKey | None, by_person: Callable[[], str]
) -> None:
    """Check the signature of the hook's own plan before it is applied.

    Raises NeedsPerson where a person must sign the plan, and ``by_person`` says what to do then; Changed if the
    signature does not fit.
    """
    if waits_for_person(trust, key):
        raise NeedsPerson(
            "The offsets need correcting, and a plan must be signed by a person first: do not start.",
            hint=by_person(),
        )
    if key is not None:
        from reconciler.plan import signing

        content = plan.to_text().encode()  # the file may have changed since
        signing.check(path, content, plan.sha256, trust)


def by_person(path: Path, config: object) -> str:
    """What a person does with the hook's plan, at ``path``; ``config``: the configuration's file."""
    sign = command("reconciler", "sign", path, "--key", "FILE")
    write = command("reconciler", "apply", path, "-c", config)
    return f"Look at it: {sign}; then {write}, and start again."
