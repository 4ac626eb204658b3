"""Spark's listener of a session's queries, for their reports: added, and taken away without a deadlock."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any


def listen(streams: Any, hear: Callable[[Any], None], started: Callable[[Any], None]) -> Any:
    """Have ``hear`` called with each report of this session's queries, in a thread of Spark's. Returns the listener.

    ``started`` is called with the event of each start, on classic Spark before ``start()`` returns; it must not raise.
    """
    from pyspark.sql.streaming import StreamingQueryListener

    class Listener(StreamingQueryListener):  # type: ignore[misc]
        def onQueryStarted(self, event: Any) -> None:
            started(event)

        def onQueryProgress(self, event: Any) -> None:
            hear(as_mapping(event.progress))

        def onQueryIdle(self, event: Any) -> None: ...

        def onQueryTerminated(self, event: Any) -> None: ...

    listener = Listener()
    streams.addListener(listener)
    return listener


def as_mapping(progress: Any) -> Mapping[str, Any]:
    """A listener's report by field. PySpark 3.5 gives it as an object, and as JSON."""
    report: Mapping[str, Any] = progress if isinstance(progress, Mapping) else json.loads(progress.json)
    return report


def stop_listening(streams: Any, listener: Any) -> None:
    """Take a listener away. A report that is being passed on may still reach it, none after that.

    Over Spark Connect, ``removeListener`` of the last listener waits for the thread that passes events on, and holds
    the lock that this thread needs for its next event: a deadlock if one is under way (SPARK-59623, in PySpark 4.0 to
    4.3). So that thread is hidden from it, and waited for when the lock is free.
    """
    bus = getattr(streams, "_sqlb", None)
    thread = getattr(bus, "_execution_thread", None)
    if bus is None or thread is None or bus._listener_bus != [listener]:
        streams.removeListener(listener)
        return
    bus._execution_thread = None
    streams.removeListener(listener)
    if listener in bus._listener_bus:  # PySpark warned that the server could not be asked, and kept it
        bus._execution_thread = thread
    elif not bus._listener_bus:  # else another listener came in between, and needs the thread
        thread.join()
