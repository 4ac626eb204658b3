"""Kafka's client: connections made alike, errors as sentences, reading a cluster's log.

In: addresses, client settings, probes. Out: answers to probes, or errors that say whose move it is.
"""

import sys
import threading
from types import ModuleType
from typing import Any


def import_client() -> None:
    """Import Kafka's client before the first module that uses it, and faster.

    It imports asyncio, and with it ssl and subprocess, for clients that this product does not use. So it gets a module
    that imports asyncio when something is taken from it. Does nothing beside other threads: one of them could
    import asyncio meanwhile, and would get that module. A thread with an attribute ``imports_nothing`` does not count.
    """
    others = [each for each in threading.enumerate() if each is not threading.current_thread()]
    if not all(getattr(each, "imports_nothing", False) for each in others):
        return
    if "asyncio" in sys.modules or "confluent_kafka" in sys.modules:
        return
    stand_in = sys.modules["asyncio"] = ModuleType("asyncio")

    def take(name: str) -> Any:
        _remove(stand_in)
        import asyncio

        return getattr(asyncio, name)

    stand_in.__getattr__ = take  # type: ignore[method-assign]
    try:
        import confluent_kafka  # noqa: F401
    finally:
        _remove(stand_in)


def _remove(stand_in: ModuleType) -> None:
    if sys.modules.get("asyncio") is stand_in:
        del sys.modules["asyncio"]
