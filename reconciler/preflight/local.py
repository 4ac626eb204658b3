"""``config check`` on this machine: certificates, a port, folders, keys; and the push gateway's address."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.client import HTTPException, InvalidURL
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from reconciler.config.addresses import without_secrets
from reconciler.config.file import Config, Job
from reconciler.core.errors import ConfigError, ExitCode, ReconcilerError
from reconciler.core.visible import command
from reconciler.fileio import is_folder, looked_at
from reconciler.folder import Folder, LocalFolder, open_folder
from reconciler.identity import settings_of
from reconciler.near import near_names
from reconciler.preflight.results import TrialResult, fail, failed, ok, warn
from reconciler.trust import signing
from reconciler.watch.listener import ListenAddress, check_tls

GATEWAY_S = 5.0
"""Seconds to wait for a push gateway."""

Marked = Callable[[str], str | None]
"""By whom and when a job was marked by ``failover start``, None if it was not. Raises as ``hook.marks`` does."""


def files(config: Config, jobs: tuple[Job, ...], marked: Marked) -> Iterator[TrialResult]:
    """Checks that need no network."""
    yield from _unread_names(config)
    yield from _functions(jobs)
    yield from _certificate(config)
    yield from _addresses(config)
    yield from _textfile(config)
    yield from _keys(config)
    yield from _marks(config, jobs, marked)


def network(config: Config, jobs: tuple[Job, ...], marked: Marked) -> Iterator[TrialResult]:
    """The port that watch would listen on, the push gateway, and the marks of another place."""
    yield from _port(config)
    yield from _gateway(config)
    yield from _marks_elsewhere(config, jobs, marked)


def _unread_names(config: Config) -> Iterator[TrialResult]:
    """Names of topics that no job reads: the topic that was meant has the name that the policy gives it."""
    read = {topic for job in config.jobs for topic in job.topics}
    for name in sorted({*config.topics.names} - read):
        near = next(iter(near_names(name, read - {*config.topics.names})), None)
        meant = f"Did you mean {near}? " if near else ""
        problem = f'[topics.names] names "{name}", which no job reads.'
        yield warn("topics", problem, f"{meant}Otherwise remove it.")


def _functions(jobs: tuple[Job, ...]) -> Iterator[TrialResult]:
    for job in jobs:
        id = settings_of(job.identity).id
        if id.startswith("python:"):
            yield ok(f"job {job.name}", f"the function {id.removeprefix('python:')} could be imported")


def _certificate(config: Config) -> Iterator[TrialResult]:
    try:
        check_tls(config.watch)
    except ConfigError as error:
        yield failed("watch", error)
        return
    if config.watch.tls_certificate is not None:
        yield ok("watch", f"the certificate {config.watch.tls_certificate} and its key can be used")


def _addresses(config: Config) -> Iterator[TrialResult]:
    """Addresses that cannot be used, whatever is there."""
    try:
        ListenAddress.parse(config.watch.listen)
    except ConfigError as error:
        yield failed("watch", error)
    if (url := config.metrics.pushgateway) is not None:
        try:
            _ready(url)
        except ValueError as error:
            yield _wrong_gateway(url, error)


def _port(config: Config) -> Iterator[TrialResult]:
    try:
        at = ListenAddress.parse(config.watch.listen)
    except ConfigError:
        return
    try:
        place = socket.getaddrinfo(at.host or None, at.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(place[0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place[4])
    except (OSError, UnicodeError) as error:  # the latter of a name that cannot be a host's, like .example.com
        yield warn(
            "watch",
            f"It could not listen on {config.watch.listen} now: {getattr(error, 'strerror', None) or error}.",
            "If watch is running here already, that is expected; otherwise choose another [watch] listen.",
        )
        return
    yield ok("watch", f"{config.watch.listen} is free to listen on")


def _textfile(config: Config) -> Iterator[TrialResult]:
    folder = config.metrics.textfile
    if folder is None:
        return
    path = Path(folder)
    try:
        is_there = is_folder(folder)
    except ReconcilerError as error:
        yield fail("metrics", error.message, error.hint or "")
        return
    if is_there and os.access(path, os.W_OK | os.X_OK):
        yield ok("metrics", f"{path} can be written")
    else:
        why = "may not be written by this user" if is_there else "is not a folder"
        yield fail("metrics", f"{path} {why}.", "Make it, or let this user write there; or correct [metrics] textfile.")


def _ready(url: str) -> Request:
    """What asks a push gateway whether it is ready. Raises ValueError for a wrong address."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it is not a URL with http:// or https://")
    place = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    return Request(f"{parts.scheme}://{place}/-/ready")


def _wrong_gateway(url: str, error: Exception) -> TrialResult:
    message = f"[metrics] pushgateway = {without_secrets(url)}: {error}."
    return fail("metrics", message, "For example: http://pushgateway:9091")


def _gateway(config: Config) -> Iterator[TrialResult]:
    url = config.metrics.pushgateway
    if url is None:
        return
    shown = without_secrets(url)
    subject = "metrics"
    try:
        ready = _ready(url)
    except ValueError:
        return  # reported as an address
    try:
        with urlopen(ready, timeout=GATEWAY_S):
            pass
    except HTTPError as error:
        error.close()  # it answers; only a push would show whether it accepts one
    except OSError as error:
        why = getattr(error, "reason", error)
        yield fail(
            subject,
            f"The push gateway {shown} does not answer: {why}.",
            "See that it is up and reachable from here. A hook's figures would not arrive there.",
            ExitCode.UNREACHABLE,
        )
        return
    except (ValueError, InvalidURL) as error:
        yield _wrong_gateway(url, error)
        return
    except HTTPException:
        yield fail(
            subject, f"What answers at {shown} does not speak HTTP: it is no push gateway.", "Correct its host or port."
        )
        return
    yield ok(subject, f"the push gateway {shown} answers")


def _keys(config: Config) -> Iterator[TrialResult]:
    trust = config.trust
    are_usable = True
    for number, key in enumerate(trust.trusted_keys, start=1):
        try:
            (name,) = signing.trusted(replace(trust, trusted_keys=(key,))).values()
        except ConfigError as error:
            are_usable = False
            yield failed("trust", error)
        else:
            yield ok("trust", f"the key {name if len(trust.trusted_keys) == 1 else f'{number}, {name},'} can be used")
    if trust.signing_key is not None:
        try:
            signing.own_key(trust if are_usable else replace(trust, trusted_keys=()))
        except ConfigError as error:
            yield failed("trust", error)
        else:
            yield ok("trust", f"the hook can sign with {trust.signing_key}")


def _marks(config: Config, jobs: tuple[Job, ...], marked: Marked) -> Iterator[TrialResult]:
    """The folder of marks, if it is on this machine; of another place only whether files there can be opened at all."""
    place = config.failover_state
    try:
        folder = open_folder(place)
        if not isinstance(folder, LocalFolder):
            return
        if looked_at(folder.shown) is None and "://" not in place:
            if config.failover_state_is_named:
                yield fail(
                    "failover",
                    f"There is no folder {folder.shown}, which [failover] state names: without it no hook starts.",
                    f"Create it once, or mount it: {command('mkdir', '-p', folder.shown)}",
                    ExitCode.UNREACHABLE,
                )
        elif looked_at(folder.shown) is not None and not folder.exists():
            yield fail("failover", f"{folder.shown} is not a folder.", "Correct [failover] state.")
        else:
            yield from _listed(folder, jobs, marked)
    except ReconcilerError as error:
        yield failed("failover", error)


def _marks_elsewhere(config: Config, jobs: tuple[Job, ...], marked: Marked) -> Iterator[TrialResult]:
    try:
        folder = open_folder(config.failover_state)
    except ConfigError:  # one of the files' results
        return
    if not isinstance(folder, LocalFolder):
        try:
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
