"""State in files: one file an entry, in a folder for each log, on any file system that creates files exclusively.

``PATH/LOG/00000000000000000007.json``. ``Folder.publish`` gives a name to one writer, with the file's whole contents.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.core.errors import NotCreated, Refused
from reconciler.places.folder import Folder, open_folder
from reconciler.places.parameters import wrong_address
from reconciler.state.store import MAKE_IT, Held

EXAMPLE = "files:PATH"
_DIGITS = 20
_SUFFIX = ".json"


def open_address(address: str) -> FilesState:
    """``files:PATH`` or ``files:URL``. Raises ConfigError if it names no folder."""
    url = address.partition(":")[2]
    if not url:
        raise wrong_address("[state] store", EXAMPLE, "it names no folder")
    return FilesState(open_folder(url))


class FilesState:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self.shown = f"files:{folder.shown}"

    def create(self) -> None:
        if not self._folder.exclusive:
            raise Refused(
                f"{self.shown} cannot keep state: of two programs that create one file there, both succeed.",
                hint="Keep it on a shared disk, HDFS (webhdfs://), S3 or GCS, or in PostgreSQL or HBase.",
            )
        if not self._folder.exists():
            self._folder.make()

    def put(self, log: str, number: int, entry: bytes) -> bool:
        self._refuse_missing()
        try:
            self._folder.publish(_path(log, number), entry)
        except FileExistsError:
            return False
        return True

    def read(self, log: str, newest: int) -> Sequence[Held]:
        found = [self.read_one(log, number) for number in self._numbers(log)[:newest]]
        return [held for held in found if held is not None]  # others were pruned since they were listed

    def read_one(self, log: str, number: int) -> Held | None:
        try:
            return Held(number, self._folder.read(_path(log, number)))
        except FileNotFoundError:
            return None

    def remove(self, log: str, number: int) -> None:
        self._folder.remove(_path(log, number))

    def prune(self, log: str, upto: int) -> None:
        for number in sorted(self._numbers(log)):
            if number <= upto:
                self._folder.remove(_path(log, number))

    def close(self) -> None:
        """Nothing is open."""

    def _refuse_missing(self) -> None:
        if not self._folder.exists():
            raise NotCreated(
                f"There is no folder {self._folder.shown} with the state.",
                hint=MAKE_IT,
            )

    def _numbers(self, log: str) -> list[int]:
        """The numbers of a log, the newest first. Raises NotCreated if the store does not exist."""
        names = self._folder.names(log)
        if not names:
            self._refuse_missing()
        found = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
        return sorted((int(name) for name in found if len(name) == _DIGITS and name.isdigit()), reverse=True)


def _path(log: str, number: int) -> str:
    return f"{log}/{number:0{_DIGITS}}{_SUFFIX}"
