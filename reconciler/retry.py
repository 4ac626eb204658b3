"""The one retry policy: random exponential pauses of 0.2 to 2 s, for errors that say a retry may help."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from reconciler.core.errors import ReconcilerError

T = TypeVar("T")


def _says_so(error: BaseException) -> bool:
    return isinstance(error, ReconcilerError) and error.retryable


def insist(
    call: Callable[[], T], *, give_up: Callable[[], bool], helps: Callable[[BaseException], bool] = _says_so
) -> T:
    """Call until it succeeds, fails for good, or ``give_up`` says that it is enough; then the last error is raised.

    ``helps`` says whether a retry may help after an error. Only for calls that may be repeated without harm.
    """
    try:
        return call()
    except Exception as error:
        if not helps(error) or give_up():
            raise
    # Imported only once something has failed: it costs 60 ms, which a start on a healthy cluster saves.
    from tenacity import RetryCallState, Retrying, retry_if_exception, wait_random_exponential  # noqa: PLC0415

    def enough(_: RetryCallState) -> bool:
        return give_up()

    wait = wait_random_exponential(multiplier=0.2, max=2.0)
    return Retrying(retry=retry_if_exception(helps), stop=enough, wait=wait, reraise=True)(call)
