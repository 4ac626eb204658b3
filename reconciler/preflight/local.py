"""``config check`` on this machine: certificates, a port, folders, keys; and the push gateway's address."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException, InvalidURL
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from reconciler.config.addresses import without_secrets
from reconciler.config.file import Config, Job
from reconciler.core.errors import ConfigError, ExitCode, ReconcilerError
from reconciler.core.visible import command
from reconciler.fileio import is_folder, looked_at
from reconciler.folder import Folder, LocalFolder, open_folder
from reconciler.near import near_names
from reconciler.preflight.results import TrialResult, fail, failed, ok, warn
from reconciler.trust import signing
from reconciler.watch.listener import ListenAddress, check_tls

GATEWAY_S = 5.0
"""Seconds to wait for a push gateway."""

Marked = Callable[[str], str | None]
"""By whom and when a job was marked by ``failover start``, None if it was not. Raises as ``hook.marks`` does."""


def on_this_machine(config: Config, jobs: tuple[Job, ...], marked: Marked, *, offline: bool) -> Iterator[TrialResult]:
    """Try what the configuration names beside clusters and stores. ``offline``: contact nothing, and open no port."""
    yield from _unread_names(config)
    yield from _watch(config, offline=offline)
    yield from _textfile(config)
    yield from _gateway(config, offline=offline)
    yield from _keys(config)
    yield from _marks(config, jobs, marked, offline=offline)


def _unread_names(config: Config) -> Iterator[TrialResult]:
    """Names of topics that no job reads: the topic that was meant has the name that the policy gives it."""
    read = {topic for job in config.jobs for topic in job.topics}
    for name in sorted({*config.topics.names} - read):
        near = next(iter(near_names(name, read - {*config.topics.names})), None)
        meant = f"Did you mean {near}? " if near else ""
        problem = f'[topics.names] names "{name}", which no job reads.'
        yield warn("topics", problem, f"{meant}Otherwise remove it.")


def _watch(config: Config, *, offline: bool) -> Iterator[TrialResult]:
    """The certificate, and the port that watch would listen on."""
    try:
        if Access.of(config.watch).tls is not None:
            yield ok("watch", f"the certificate {config.watch.tls_certificate} and its key can be used")
    except ConfigError as error:
        yield failed("watch", error)
    try:
        at = ListenAddress.parse(config.watch.listen)
        if offline:
            return
        place = socket.getaddrinfo(at.host or None, at.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(place[0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place[4])
        yield ok("watch", f"{config.watch.listen} is free to listen on")
    except ConfigError as error:
        yield failed("watch", error)
    except (OSError, UnicodeError) as error:  # the latter of a name that cannot be a host's, like .example.com
        yield warn(
            "watch",
            f"It could not listen on {config.watch.listen} now: {getattr(error, 'strerror', None) or error}.",
            "If watch is running here already, that is expected; otherwise choose another [watch] listen.",
        )


def _textfile(config: Config) -> Iterator[TrialResult]:
    folder = config.metrics.textfile
    if folder is None:
        return
    try:
        is_there = is_folder(folder)
    except ReconcilerError as error:
        yield fail("metrics", error.message, error.hint or "")
        return
    if is_there and os.access(folder, os.W_OK | os.X_OK):
        yield ok("metrics", f"{folder} can be written")
    else:
        why = "may not be written by this user" if is_there else "is not a folder"
        yield fail("metrics", f"{folder} {why}.", "Make it, or let this user write there.")


def _gateway(config: Config, *, offline: bool) -> Iterator[TrialResult]:
    """Whether the push gateway answers; only a push would show whether it accepts one."""
    if (url := config.metrics.pushgateway) is None:
        return
    shown = without_secrets(url)
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it is not a URL with http:// or https://")
        place = parts.netloc.rpartition("@")[2]
        if offline:
            return
        with suppress(HTTPError), urlopen(f"{parts.scheme}://{place}/-/ready", timeout=GATEWAY_S):
            pass
        yield ok("metrics", f"the push gateway {shown} answers")
    except OSError as error:
        why = getattr(error, "reason", error)
        next_step = "See that it is up and reachable from here. A hook's figures would not arrive there."
        yield fail("metrics", f"The push gateway {shown} does not answer: {why}.", next_step, ExitCode.UNREACHABLE)
    except (ValueError, HTTPException) as error:
        why = str(error).splitlines()[0] if isinstance(error, ValueError | InvalidURL) else "no HTTP is spoken there"
        yield fail("metrics", f"[metrics] pushgateway = {shown}: {why}.", "For example: http://pushgateway:9091")


def _keys(config: Config) -> Iterator[TrialResult]:
    trust = config.trust
    try:
        if names := signing.trusted(trust).values():
            yield ok("trust", f"usable: {', '.join(names)}")
        if trust.signing_key is not None:
            signing.own_key(trust)
            yield ok("trust", f"the hook can sign with {trust.signing_key}")
    except ConfigError as error:
        yield failed("trust", error)


def _marks(config: Config, jobs: tuple[Job, ...], marked: Marked, *, offline: bool) -> Iterator[TrialResult]:
    """The folder of marks, and each job's mark. One that is not named is made by ``failover start``."""
    try:
        folder = open_folder(config.failover_state)
        is_local = isinstance(folder, LocalFolder)
        if is_local and not folder.exists():
            if looked_at(folder.shown) is not None:
                yield fail("failover", f"{folder.shown} is not a folder.", "Correct [failover] state.")
            elif config.failover_state_is_named:
                yield fail(
                    "failover",
                    f"There is no folder {folder.shown}, which [failover] state names: without it no hook starts.",
                    f"Create it once, or mount it: {command('mkdir', '-p', folder.shown)}",
                    ExitCode.UNREACHABLE,
                )
        elif is_local or not offline:
            yield from _listed(folder, jobs, marked)
    except ReconcilerError as error:
        yield failed("failover", error)


def _listed(folder: Folder, jobs: tuple[Job, ...], marked: Marked) -> Iterator[TrialResult]:
    """Whether marks can be read and set there, and each job's mark: a hook starts no job whose mark it cannot read."""
    if not folder.exists():
        next_step = "failover start makes it with the first mark. If it has made marks, correct [failover] state."
        yield warn("failover", f"There is no folder of marks {folder.shown} yet.", next_step)
        return
    folder.names()
    if folder.may_be_written(""):
        yield ok("failover", f"the folder of marks {folder.shown} can be read")
    else:
        yield warn(
            "failover",
            f"The folder of marks {folder.shown} can be read, and this user may not write there.",
            "Right where only hooks run. The user of failover start must be able to: let it write there.",
        )
    for job in jobs:
        try:
            mark = marked(job.name)
        except ReconcilerError as error:
            yield failed(f"job {job.name}", error)
            continue
        if mark is not None:
            yield warn(
                f"job {job.name}",
                f"It is marked: its hook moves it to the destination at its next start ({mark}).",
                "Right during a failover. Otherwise: reconciler failover end.",
            )
