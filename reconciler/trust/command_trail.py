"""The user and the command line of an attempt, as the audit log keeps them: without secrets."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from reconciler import __version__
from reconciler.clock import clock_ms
from reconciler.config.addresses import without_secrets
from reconciler.config.redaction import KNOWN
from reconciler.config.settings import TrustSettings
from reconciler.trust.audit_log import AuditLog
from reconciler.trust.audit_trail import Attempt
from reconciler.trust.witness import Witness

FREE_SETTINGS = frozenset({"--option", "--conf", "--kafka-option", "--source-option", "--client"})
"""Options whose value is another program's NAME=VALUE, perhaps a password: only the name is kept."""


def attempt(trust: TrustSettings, action: str, words: Sequence[str]) -> Attempt:
    """An attempt, by the command line ``words``, that goes into the configuration's audit log, if there is one."""
    if trust.audit_log is None:
        return Attempt(None, action, {}, (), clock_ms)
    witness = None if trust.audit_heads is None else Witness(Path(trust.audit_heads))
    command = list(without_secret_words(words))
    return Attempt(AuditLog(Path(trust.audit_log)), action, who(), command, clock_ms, witness)


def who() -> dict[str, Any]:
    """The user and the machine of this process."""
    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:  # containers run as users without a name
        user = None
    sudo_user = os.environ.get("SUDO_USER")
    named = {"user": user, "uid": uid, "sudo_user": sudo_user, "host": os.uname().nodename}
    return {**named, "pid": os.getpid(), "version": __version__}


def without_secret_words(words: Sequence[str]) -> Iterator[str]:
    """The command line without secrets; of a hook's command after ``--`` only the program's name."""
    expects_value = False
    for number, word in enumerate(words):
        if word == "--":
            yield from ("--", *words[number + 1 : number + 2], *(["…"] if len(words) > number + 2 else []))
            return
        option, equals, value = word.partition("=")
        if expects_value:
            yield f"{option}=…" if equals else word
        elif option in FREE_SETTINGS and equals:
            yield f"{option}={value.partition('=')[0]}=…"
        elif "://" in word:
            yield KNOWN.redacted(f"{option}={without_secrets(value)}" if option[:2] == "--" else without_secrets(word))
        else:
            yield KNOWN.redacted(word)
        expects_value = word in FREE_SETTINGS
