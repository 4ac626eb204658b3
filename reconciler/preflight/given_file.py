"""Recognizes what a file is that was given in place of a Kafka client's properties. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from reconciler.core.errors import ConfigError
from reconciler.core.visible import command
from reconciler.preflight.java_properties import line_name, logical_lines

_RESOURCE = re.compile(r"""^[ \t]*["']?kind["']?\s*:\s*["']?(?P<kind>\w+)""", re.MULTILINE)
_BLOCK = re.compile(r"^\s*\w+\s*\{\s*$", re.MULTILINE)
_TABLE = re.compile(r"^\s*\[+[\w.-]+\]+\s*$", re.MULTILINE)
_OF_WORKERS = frozenset(
    {"config.storage.topic", "offset.storage.topic", "offset.storage.file.filename", "key.converter", "plugin.path"}
)
_OF_BROKERS = frozenset(
    {"broker.id", "node.id", "process.roles", "log.dirs", "log.dir", "listeners", "zookeeper.connect"}
)
_CLIENTS = (
    "Give the properties of a client: bootstrap.servers, security.protocol, and its login (sasl.mechanism and "
    "sasl.jaas.config), as kafka-topics.sh --command-config takes them."
)
_LOGIN_OF_SECRET = (
    "Decode sasl.jaas.config of the user's Secret (kubectl get secret NAME -o jsonpath='{.data.sasl\\.jaas\\.config}' "
    "| base64 -d), and write it into a client's properties file, with security.protocol and sasl.mechanism."
)


def names_in(text: str) -> list[str]:
    """The names in a properties file, also of lines that nothing can be made of."""
    return [name for line in logical_lines(text) if (name := line_name(line))]


def is_mirrors(names: Collection[str]) -> bool:
    """Whether a file with these properties is MirrorMaker's, or one of its connectors'."""
    return any(name in ("clusters", "source.cluster.alias", "target.cluster.alias") or "->" in name for name in names)


def resource_kind(text: str) -> str | None:
    """The kind of a Kubernetes resource; None for any other text."""
    found = _RESOURCE.search(text) if "apiVersion" in text else None
    return found["kind"] if found else None


def refuse_other_file(text: str, names: Collection[str], path: Path) -> None:
    """Raises ConfigError for a file that is known not to be a client's properties; it says what to give instead."""
    what, hint = "", _CLIENTS
    kind = resource_kind(text)
    if kind == "KafkaMirrorMaker2" or (kind is None and is_mirrors(names)):
        what = "MirrorMaker's configuration"
        hint = f"Give it as {command('--mirror-properties', path)}: that takes the login of the mirror's target, too."
    elif kind in ("KafkaUser", "Secret"):
        what, hint = f"a Kubernetes resource ({kind})", _LOGIN_OF_SECRET
    elif kind is not None:
        what = f"a Kubernetes resource ({kind})"
    elif text.lstrip().startswith(("{", "[{")):
        what = "JSON"
    elif text.lstrip().startswith("-----BEGIN"):
        what = "a certificate or a key in PEM"
    elif _BLOCK.search(text):
        what = "a JAAS file"
        hint = "Give a client's properties file with its login module in one line, as sasl.jaas.config."
    elif _TABLE.search(text):
        what = "TOML, like a configuration of this program"
    elif "connector.class" in names:
        what = "a connector's configuration"
    elif _OF_WORKERS.intersection(names):
        what = "the configuration of a Connect worker"
    elif _OF_BROKERS.intersection(names):
        what = "a broker's configuration"
    if what:
        raise ConfigError(f"{path} is {what}, not the properties of a client.", hint=hint)
