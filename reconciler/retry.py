"""The one retry policy: random exponential pauses of 0.2 to 2 s, for errors that say a retry may help.

``PatientReader`` is a log whose calls are repeated so. The engine has its own retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from reconciler.core.errors import ReconcilerError
from reconciler.core.probes import Chunk
from reconciler.ports import ClusterInfo, LogReader, ReadRequest, TopicPartition
from reconciler.waits import LeftS, cause_of, waiting

SHORTEST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 2.0

T = TypeVar("T")


def _is_retryable(error: BaseException) -> bool:
    return isinstance(error, ReconcilerError) and error.retryable


def insist(call: Callable[[], T], *, left_s: LeftS, helps: Callable[[BaseException], bool] = _is_retryable) -> T:
    """Call until it succeeds, fails for good, or ``left_s`` returns no more seconds; then raise the last error.

    The pause after the n-th failure is random between 0.2 s and 0.2 s times 2 to the n, 2 s at most.
    ``helps`` says whether a retry may help after an error. Only for calls that may be repeated without harm.
    """
    with waiting("", left_s) as wait:
        try:
            return call()
        except Exception as error:
            if not helps(error) or left_s() <= 0:
                raise
            cause = wait.cause() or cause_of(error)
            wait.cause = lambda: cause
        # Imported only after a first failure: they cost 60 ms, which a start on a healthy cluster saves.
        import random  # noqa: PLC0415

        from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential  # noqa: PLC0415

        def enough(_: RetryCallState) -> bool:
            return left_s() <= 0

        # Tenacity counts from its own first call, which is the second one here.
        pause = wait_random_exponential(multiplier=4 * SHORTEST_PAUSE_S, min=SHORTEST_PAUSE_S, max=LONGEST_PAUSE_S)
        retrying = Retrying(retry=retry_if_exception(helps), stop=enough, wait=pause, reraise=True)
        retrying.sleep(random.uniform(SHORTEST_PAUSE_S, 2 * SHORTEST_PAUSE_S))
        return retrying(call)


class PatientReader:
    """Repeats a call of ``reader`` while it fails and a retry may help, until ``deadline_s`` seconds after it began.

    ``clock`` gives monotonic seconds. Reading twice harms nothing. Satisfies ``ports.LogReader``.
    """

    def __init__(self, reader: LogReader, clock: Callable[[], float], deadline_s: float) -> None:
        self._reader = reader
        self._clock = clock
        self._deadline_s = deadline_s

    def describe(self, topics: Iterable[str]) -> ClusterInfo:
        names = list(topics)
        return self._insist(lambda: self._reader.describe(names))

    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._insist(lambda: self._reader.log_starts(partitions))

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._insist(lambda: self._reader.log_ends(partitions))

    def offsets_for_times(self, asked: Sequence[tuple[TopicPartition, int]]) -> Sequence[int | None]:
        return self._insist(lambda: self._reader.offsets_for_times(asked))

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        return self._insist(lambda: self._reader.read(requests))

    def close(self) -> None:
        self._reader.close()

    def _insist(self, call: Callable[[], T]) -> T:
        until = self._clock() + self._deadline_s
        return insist(call, left_s=lambda: until - self._clock())
