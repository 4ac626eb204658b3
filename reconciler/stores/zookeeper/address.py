"""Addresses of offset stores in ZooKeeper; ``open_address`` opens one."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

from reconciler.config.addresses import split, without_secrets
from reconciler.core.errors import ConfigError
from reconciler.ports import OffsetStore
from reconciler.stores import common
from reconciler.stores.zookeeper.layouts import check_name, problem_of
from reconciler.stores.zookeeper.store import TIMEOUT_S, ZookeeperStore

EXAMPLE = "zookeeper://h1:2181,h2:2181/kafka?layout=consumers"
_CHOICES: Mapping[str, tuple[str, ...] | None] = {
    "layout": ("consumers", "single"),
    "saves": ("until", "from"),
    "anchors": ("beside", "apart"),
    "of_group": None,
    "timeout": None,
}
"""The parameters; None: any text."""


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``zookeeper://[USER:PASSWORD@]HOSTS[/CHROOT]?layout=consumers|single`` and, if need be, ``&saves=until|from``,
    ``&anchors=beside|apart``, ``&timeout=SECONDS`` and, with ``single``, ``&of_group=GROUP``.

    Raises ConfigError for any other address. Nothing is contacted yet.
    """
    parts = split(address)
    if parts.fragment:
        raise _wrong("it has a # in it, which must be written as %23")
    settings = _settings(parts.query)
    layout, of_group = settings["layout"], settings.get("of_group")
    if of_group is not None and layout != "single":
        raise _wrong("of_group goes with layout=single only: the other layout has groups")
    return ZookeeperStore(
        _checked_hosts(parts.hosts),
        _chroot(parts.path),
        layout,
        credentials=_credentials(parts.user),
        of_group=of_group,
        anchors_beside=settings.get("anchors") != "apart",
        address=without_secrets(address),
        timeout_s=_timeout_s(settings.get("timeout", f"{TIMEOUT_S:g}")),
    )


def _settings(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise _wrong("its parameters are not NAME=VALUE&NAME=VALUE") from None
    settings: dict[str, str] = {}
    for name, value in pairs:
        if name not in _CHOICES:
            raise _wrong(f"{name!a} is not one of its parameters ({', '.join(_CHOICES)})")
        if name in settings:
            raise _wrong(f"{name} is given twice")
        choices = _CHOICES[name]
        if choices is not None and value not in choices:
            raise _wrong(f"{name}={value!a} is not one of {', '.join(choices)}")
        settings[name] = value
    if "layout" not in settings:
        raise _wrong("it does not say which layout: consumers or single")
    if "of_group" in settings:
        check_name("group in of_group", settings["of_group"])
    return settings


def _timeout_s(text: str) -> float:
    seconds = common.timeout_s(text)
    if seconds is None:
        raise _wrong(f"timeout={text!a} is not a time in seconds, above 0 and up to 600")
    return seconds


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


def _wrong(why: str) -> ConfigError:
    # The address is not repeated: it may hold a password, and could not be parsed.
    return ConfigError(f"A store's address zookeeper:… is wrong: {why}.", hint=f"Write it like {EXAMPLE}.")
