"""``config check`` on this machine: certificates, a port, folders, keys; and the push gateway's address."""

from __future__ import annotations

import os
import socket
from contextlib import closing, suppress
from http.client import HTTPException, InvalidURL
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from reconciler.clock import stamp
from reconciler.config.addresses import without_secrets
from reconciler.config.file import Config, Job
from reconciler.core.errors import ExitCode
from reconciler.core.text import command
from reconciler.jobs.watch.listener import ListenAddress, check_tls
from reconciler.near import near_names
from reconciler.plan import signing
from reconciler.preflight.results import Trials
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location
from reconciler.state.opening import open_state

GATEWAY_S = 5.0
"""Seconds to wait for a push gateway."""


def on_this_machine(config: Config, jobs: tuple[Job, ...], trials: Trials, *, offline: bool) -> None:
    """Try what the configuration names beside clusters and stores. ``offline``: contact nothing, and open no port."""
    _unread_names(config, trials)
    _watch(config, trials, offline=offline)
    _textfile(config, trials)
    _gateway(config, trials, offline=offline)
    _keys(config, trials)
    _state(config, jobs, trials, offline=offline)


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


def _state(config: Config, jobs: tuple[Job, ...], trials: Trials, *, offline: bool) -> None:
    """The state store, and where it says that each job lives: without it no hook starts."""
    if config.state is None:
        next_step = "Add one before the first start by the hook; reconciler init -c FILE makes it."
        trials.warn("state", "There is no [state] store: hook, move and status need one.", next_step)
        return
    if offline and not config.state.startswith("sqlite:"):
        return
    with trials.trying("state"), closing(open_state(config.state)) as store:
        trials.ok("state", f"{store.shown} is state store {store.id[:8]}")
        if config.state.startswith("sqlite:"):
            next_step = "Right for one machine; else PostgreSQL, HBase, or files: on a shared disk or in a bucket."
            trials.warn("state", "Only this machine's hooks see a SQLite file.", next_step)
        for job in jobs:
            with trials.trying(f"job {job.name}"):
                trials.ok(f"job {job.name}", _lives(JobState(store, job.name).location(), job))


def _lives(here: Location | None, job: Job) -> str:
    if here is None:
        move = command("reconciler", "move", "--to", job.home)
        return f"where it lives is not recorded: its first start, or {move}, does that"
    since = f"since {stamp(here.at_ms)}, by {here.by}"
    return f"{'lives on' if here.to is None else f'is moving to {here.to} from'} {here.cluster}, {since}"
