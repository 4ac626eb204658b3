"""The files of a checkpoint that its copy has with other offsets."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from reconciler.checkpoints.files import Tree
from reconciler.checkpoints.translate import Translation
from reconciler.core.errors import Refused
from reconciler.formats.checkpoint.edit import entry_with, initial_with
from reconciler.formats.json_fields import FieldError


@dataclass(frozen=True, slots=True)
class Edit:
    """One rewritten file."""

    file: str
    before: bytes
    after: bytes


def edits_of(source: Tree, moved: Translation) -> Iterator[Edit]:
    """The files of the checkpoint that the translation changes. Raises Refused for one that cannot be rewritten."""
    for file, texts in moved.edits.items():
        before = source.read(file)
        try:
            if file.startswith("offsets/"):
                after = entry_with(int(posixpath.basename(file)), before, texts)
            else:
                ((name, text),) = texts.items()
                after = initial_with(name, before, text)
        except FieldError as err:
            raise Refused(
                f"The checkpoint file {source.shown}/{file} cannot be rewritten: {err}.", hint="Restore the checkpoint."
            ) from err
        yield Edit(file, before, after)


def side_files(names: Iterable[str]) -> Iterator[str]:
    """The checksums of rewritten files: Hadoop's on local file systems, and Spark's own."""
    for each in names:
        folder, name = posixpath.split(each)
        yield posixpath.join(folder, f".{name}.crc")
        yield posixpath.join(folder, f"{name}.crc")
