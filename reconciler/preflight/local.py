"""``config check`` on this machine: certificates, a port, folders, keys; and the push gateway's address."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException, InvalidURL
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from reconciler.config.addresses import without_secrets
from reconciler.config.file import Config, Job
from reconciler.core.errors import ExitCode
from reconciler.core.visible import command
from reconciler.fileio import looked_at
from reconciler.folder import Folder, LocalFolder, open_folder
from reconciler.near import near_names
from reconciler.preflight.results import Trials
from reconciler.trust import signing
from reconciler.watch.listener import ListenAddress, check_tls

GATEWAY_S = 5.0
"""Seconds to wait for a push gateway."""

Marked = Callable[[str], str | None]
"""By whom and when a job was marked by ``failover start``, None if it was not. Raises as ``hook.marks`` does."""


def on_this_machine(config: Config, jobs: tuple[Job, ...], marked: Marked, trials: Trials, *, offline: bool) -> None:
    """Try what the configuration names beside clusters and stores. ``offline``: contact nothing, and open no port."""
    _unread_names(config, trials)
    _watch(config, trials, offline=offline)
    _textfile(config, trials)
    _gateway(config, trials, offline=offline)
    _keys(config, trials)
    _marks(config, jobs, marked, trials, offline=offline)


def _unread_names(config: Config, trials: Trials) -> None:
    """Names of topics that no job reads: the topic that was meant has the name that the policy gives it."""
    read = {str(stream) for job in config.jobs for stream in job.streams}
    for cluster, named in config.topics.naming.names.items():
        names = {str(stream) for stream in named}
        for name in sorted(names - read):
            near = next(iter(near_names(name, read - names)), None)
            meant = f"Did you mean {near}? " if near else ""
            problem = f'[topics.names.{cluster}] names "{name}", which no job reads.'
            trials.warn("topics", problem, f"{meant}Otherwise remove it.")


def _watch(config: Config, trials: Trials, *, offline: bool) -> None:
    """The certificate, and the port that watch would listen on."""
    with trials.trying("watch"):
        check_tls(config.watch)
        if config.watch.tls_certificate is not None:
            trials.ok("watch", f"the certificate {config.watch.tls_certificate} and its key can be used")
    listen = config.watch.listen
    with trials.trying("watch"):
        at = ListenAddress.parse(listen)
        if offline:
            return
        try:
            place = socket.getaddrinfo(at.host or None, at.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            with socket.socket(place[0], socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place[4])
            trials.ok("watch", f"{listen} is free to listen on")
        except (OSError, UnicodeError) as error:  # the latter of a name that cannot be a host's, like .example.com
            message = f"It could not listen on {listen} now: {getattr(error, 'strerror', None) or error}."
            next_step = "If watch is running here already, that is expected; otherwise choose another [watch] listen."
            trials.warn("watch", message, next_step)


def _textfile(config: Config, trials: Trials) -> None:
    folder = config.metrics.textfile
    if folder is not None and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
        trials.ok("metrics", f"{folder} can be written")
    elif folder is not None:
        trials.fail("metrics", f"{folder} is not a folder that this user may write.", "Make it, or correct the key.")


def _gateway(config: Config, trials: Trials, *, offline: bool) -> None:
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
        trials.ok("metrics", f"the push gateway {shown} answers")
    except OSError as error:
        why = getattr(error, "reason", error)
        next_step = "See that it is up and reachable from here. A hook's figures would not arrive there."
        trials.fail("metrics", f"The push gateway {shown} does not answer: {why}.", next_step, ExitCode.UNREACHABLE)
    except (ValueError, HTTPException) as error:
        why = str(error).splitlines()[0] if isinstance(error, ValueError | InvalidURL) else "no HTTP is spoken there"
        trials.fail("metrics", f"[metrics] pushgateway = {shown}: {why}.", "For example: http://pushgateway:9091")


def _keys(config: Config, trials: Trials) -> None:
    trust = config.trust
    with trials.trying("trust"):
        if names := signing.trusted(trust).values():
            trials.ok("trust", f"usable: {', '.join(names)}")
        if trust.signing_key is not None:
            signing.own_key(trust)
            trials.ok("trust", f"the hook can sign with {trust.signing_key}")


def _marks(config: Config, jobs: tuple[Job, ...], marked: Marked, trials: Trials, *, offline: bool) -> None:
    """The folder of marks, and each job's mark. One that is not named is made by ``failover start``."""
    with trials.trying("failover"):
        folder = open_folder(config.failover_state)
        is_local = isinstance(folder, LocalFolder)
        if not is_local and offline:
            return
        if folder.exists():
            _listed(folder, jobs, marked, trials)
        elif not is_local:
            next_step = "failover start makes it with the first mark. If it has made marks, correct [failover] state."
            trials.warn("failover", f"There is no folder of marks {folder.shown} yet.", next_step)
        elif looked_at(folder.shown) is not None:
            trials.fail("failover", f"{folder.shown} is not a folder.", "Correct [failover] state.")
        elif config.failover_state_is_named:
            message = f"There is no folder {folder.shown}, which [failover] state names: without it no hook starts."
            next_step = f"Create it once, or mount it: {command('mkdir', '-p', folder.shown)}"
            trials.fail("failover", message, next_step, ExitCode.UNREACHABLE)


def _listed(folder: Folder, jobs: tuple[Job, ...], marked: Marked, trials: Trials) -> None:
    """Whether marks can be read and set there, and each job's mark: a hook starts no job whose mark it cannot read."""
    folder.names()
    can = f"the folder of marks {folder.shown} can be read"
    if folder.may_be_written(""):
        trials.ok("failover", can)
    else:
        next_step = "Right where only hooks run: let the user of failover start write there."
        trials.warn("failover", f"{can}, and this user may not write there.", next_step)
    for job in jobs:
        with trials.trying(f"job {job.name}"):
            if (mark := marked(job.name)) is not None:
                message = f"It is marked: its hook moves it to the destination at its next start ({mark})."
                trials.warn(f"job {job.name}", message, "Right during a failover. Otherwise: reconciler failover end.")
