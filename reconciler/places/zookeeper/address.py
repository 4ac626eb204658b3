"""Addresses of offset stores in ZooKeeper; ``open_address`` opens one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from urllib.parse import unquote

from reconciler.config.addresses import split, without_secrets
from reconciler.places.numbers import number_in
from reconciler.places.parameters import ENCODED, Parameters, wrong_address
from reconciler.places.zookeeper.layouts import check_name, problem_of
from reconciler.places.zookeeper.store import TIMEOUT_S, ZookeeperStore
from reconciler.ports import OffsetStore

EXAMPLE = "zookeeper://h1:2181,h2:2181/kafka?layout=consumers"
_wrong = partial(wrong_address, "The address of a ZooKeeper store", EXAMPLE)


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``zookeeper://[USER:PASSWORD@]HOSTS[/CHROOT]?layout=consumers|single`` and, if need be,
    ``&number=next|last|first``, ``&timeout=SECONDS`` and, with ``single``, ``&of_group=GROUP``.

    Raises ConfigError for any other address. Nothing is contacted yet.
    """
    parts = split(address)
    if parts.fragment:
        raise _wrong("it has a # in it, which must be written as %23")
    if parts.query and not all("=" in each for each in parts.query.split("&")):
        raise _wrong("its parameters are not NAME=VALUE&NAME=VALUE")
    if "@" in parts.path:  # the end of a password would be taken for a znode, and be shown
        raise _wrong(f"it has an @ behind its hosts (write one of the path as %40; in a login, {ENCODED})")
    parameters = Parameters(parts.query, _wrong)
    layout = parameters.choice("layout", "consumers", "single", required=True)
    number = number_in(parameters)
    of_group = parameters.text("of_group")
    timeout_s = parameters.timeout_s(TIMEOUT_S)
    parameters.check_all_known()
    if of_group is not None:
        check_name("group in of_group", of_group)
        if layout != "single":
            raise _wrong("of_group goes with layout=single only: the other layout has groups")
    return ZookeeperStore(
        _checked_hosts(parts.hosts),
        _chroot(parts.path),
        layout,
        credentials=_credentials(parts.user),
        of_group=of_group,
        number=number,
        address=without_secrets(address),
        timeout_s=timeout_s,
    )


def _checked_hosts(hosts: str) -> str:
    from kazoo.hosts import collect_hosts

    if not hosts.strip(",") or any(not host or host.startswith(":") for host in hosts.split(",")):
        raise _wrong("it names no host")
    try:
        collect_hosts(hosts)
    except ValueError:
        raise _wrong("its hosts are not HOST:PORT,HOST:PORT") from None
    return hosts


def _credentials(user_part: str) -> str | None:
    if not user_part:
        return None
    user, colon, password = user_part.partition(":")
    if not user or not colon:
        raise _wrong("its credentials are not USER:PASSWORD")
    return f"{unquote(user)}:{unquote(password)}"


def _chroot(path: str) -> str:
    names = [unquote(name) for name in path.strip("/").split("/")] if path.strip("/") else []
    for name in names:
        if problem := problem_of(name):
            raise _wrong(f"the znode {name!a} in its path {problem}")
    return "".join(f"/{name}" for name in names)
