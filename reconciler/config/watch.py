"""The configuration's ``[watch]`` and ``[metrics]``: how the continuous check runs, and where its figures go."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.config.table import Table
from reconciler.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """``listen`` is HOST:PORT; ``every_ms`` from one round's begin to the next; TLS and a login are optional."""

    listen: str = "127.0.0.1:9464"
    every_ms: int = 60_000
    requests_per_second: int = 50
    """To the destination's brokers, over all jobs of the process."""
    single_cluster: bool = False
    """All jobs run on the watched cluster, whatever it was rebuilt as: one numbered by another is a mismatch."""
    tls_certificate: str | None = None
    tls_key: str | None = None
    username: str | None = None
    password: str | None = None


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where a hook's figures go when it ends: a folder of node_exporter's textfile collector, a push gateway's URL."""

    textfile: str | None = None
    pushgateway: str | None = None


def watch_settings(table: Table) -> WatchSettings:
    settings = WatchSettings(
        listen=table.text("listen", "127.0.0.1:9464"),
        every_ms=table.duration_ms("every", "60s"),
        requests_per_second=table.count("requests_per_second", 50, 1),
        single_cluster=table.take("single_cluster", bool, False),
        tls_certificate=table.text("tls_certificate"),
        tls_key=table.text("tls_key"),
        username=table.text("username"),
        password=table.text("password"),
    )
    if settings.every_ms < 1:
        raise ConfigError(f"{table.where('every')} must be above 0.")
    for one, other in (("tls_certificate", "tls_key"), ("username", "password")):
        if bool(getattr(settings, one)) != bool(getattr(settings, other)):
            raise ConfigError(f"{table.where(one)} and {other} belong together.", hint="Give both, or neither.")
    table.done()
    return settings


def metrics_settings(table: Table) -> MetricsSettings:
    settings = MetricsSettings(table.text("textfile"), table.text("pushgateway"))
    table.done()
    return settings
