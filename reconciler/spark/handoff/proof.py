"""Whether a file may decide a job's start, and name the cluster to which the job sends its login.

The checksum in a plan or a start fits whatever anyone has written into the file. Four things vouch for it:

1. A signature by a trusted key (``RECONCILER_TRUSTED_KEYS``, or the argument). Where keys are named, nothing less will
   do, and the plan must not have expired.
2. The SHA-256 of the start's file, which the hook hands over in the environment of the command that it starts.
3. The job's environment names the cluster (``RECONCILER_BOOTSTRAP_SERVERS``).
4. The job names the cluster itself, in its options: then the file's is not used.

Without any of them no options are made: the job would send its login wherever the file says.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from reconciler.clock import stamp
from reconciler.core.errors import Changed, ConfigError
from reconciler.fileio import read_regular, why
from reconciler.formats.plan import Plan, PlanSource, parse_plan

log = logging.getLogger(__name__)

KEYS_VARIABLE = "RECONCILER_TRUSTED_KEYS"
"""Paths of public keys (PEM), separated by colons."""
DIGEST_VARIABLE = "RECONCILER_START_SHA256"
CLUSTER_VARIABLE = "RECONCILER_BOOTSTRAP_SERVERS"
"""The clusters that a file may name, separated by white space, each as the configuration has it."""

Keys = Iterable[str | os.PathLike[str]] | None
_Source = Mapping[str, object] | str | os.PathLike[str]


def digest_of(text: str) -> str:
    """The value of ``DIGEST_VARIABLE`` for a start's file of this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def read(source: PlanSource, environ: Mapping[str, str], *, trusted_keys: Keys, now_ms: int) -> tuple[Plan, bool]:
    """The plan, and whether something vouches for its cluster.

    Raises Changed for a plan that is altered, expired or not signed by a trusted key; ConfigError for a file that
    cannot be read, and for a cluster that the environment does not name.

    Where no key is trusted, a plan that has expired is warned of, not refused: a query that restarts from its
    checkpoint does not use the plan's offsets, and must be able to restart a month later.
    """
    if isinstance(source, Plan):
        return source, True  # made in this very process
    keys = keys_of(trusted_keys, environ)
    content = _content(source)
    plan = parse_plan(content)
    has_expired = stamp(now_ms) >= plan.expires_at
    if keys:
        _require_signature(source, content, plan, keys)
        if has_expired:
            raise Changed(f"The plan expired at {plan.expires_at}.", hint="Make a new one, and have it signed.")
        return plan, True
    if has_expired:
        log.warning(
            "The plan was made at %s and expired at %s: its offsets have not been checked since. Make a new plan if "
            "the query starts with a new checkpoint; one that has a checkpoint does not use them.",
            plan.created_at,
            plan.expires_at,
        )
    return plan, _names(plan.bootstrap_servers, environ)


def is_vouched_for(path: str, text: str, bootstrap_servers: str, environ: Mapping[str, str]) -> bool:
    """True if the start's file is the hook's, or its cluster one that the environment names.

    Raises Changed for a file that is not the hook's, ConfigError for a cluster that the environment does not name.
    """
    digest = environ.get(DIGEST_VARIABLE)
    if digest and digest != digest_of(text):
        raise Changed(
            f"The start {path} is not the one that the hook wrote: its SHA-256 is not {digest} ({DIGEST_VARIABLE}).",
            hint="Find out which program changed it, then start the job by `reconciler hook` again.",
        )
    return _names(bootstrap_servers, environ) or bool(digest)


def _names(bootstrap_servers: str, environ: Mapping[str, str]) -> bool:
    clusters = environ.get(CLUSTER_VARIABLE, "").split()
    if clusters and bootstrap_servers not in clusters:
        raise ConfigError(
            f"The job would start at {bootstrap_servers}, and {CLUSTER_VARIABLE} names {', '.join(clusters)}.",
            hint="Take the files of this cluster, or correct the variable: names must read as in the configuration.",
        )
    return bool(clusters)


def cluster_not_vouched_for(bootstrap_servers: str, option: str) -> ConfigError:
    """The error for options that would send a job's login to a cluster which only a file names."""
    return ConfigError(
        f"Only a file names the cluster at {bootstrap_servers}, and nothing vouches for the file: the job "
        "would send its login there.",
        hint=f"Name the cluster in the job ({option}) or in {CLUSTER_VARIABLE}; or have plans signed, and name the "
        f"keys in {KEYS_VARIABLE}; or start the job by `reconciler hook`, and take its variables along.",
    )


def keys_of(given: Keys, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The paths of the trusted keys: those given, else the environment's."""
    if given is not None:
        return tuple(os.fspath(key) for key in given)
    return tuple(filter(None, environ.get(KEYS_VARIABLE, "").split(os.pathsep)))


def _require_signature(source: _Source, content: bytes, plan: Plan, keys: tuple[str, ...]) -> None:
    from reconciler.config.settings import TrustSettings
    from reconciler.trust import signing

    if isinstance(source, Mapping):
        raise Changed(
            "Plans must be signed here, and a plan given as an object has no signature.",
            hint="Give the path of its file, with the signature beside it.",
        )
    signing.check(Path(source), content, plan.sha256, TrustSettings(require_signature=True, trusted_keys=keys))


def _content(source: _Source) -> bytes:
    """The bytes of a plan's file, which are UTF-8; a signature is made over them."""
    if isinstance(source, Mapping):
        try:
            return json.dumps(source).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"The plan is not a decoded JSON object: {error}.", hint="Give what json.load returns."
            ) from error
    try:
        return read_regular(Path(source))
    except (OSError, ValueError) as error:  # a path with a NUL in it is a ValueError
        raise ConfigError(
            f"The plan {source!s} cannot be read: {why(error)}.",
            hint="Give the path of a file that `reconciler plan` or `reconciler hook` wrote.",
        ) from error
