"""``Files`` for the blocking client."""

from __future__ import annotations

from typing import Iterator, List, Optional

from . import _files
from ._files import Data, FileInfo, Path
from ._io import drive


class Files:
    """The files of a session's machine. Relative paths start in the session's current directory.

    Errors are those of ``open``: ``FileNotFoundError``, ``PermissionError``, ``IsADirectoryError`` and so on. A path
    must be valid UTF-8.
    """

    def __init__(self, inner: _files.Files) -> None:
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    def stream(self, path: Path) -> Iterator[bytes]:
        """Reads a file in pieces, of any size."""
        pieces = self._inner.stream(path)
        try:
            while True:
                try:
                    piece = drive(pieces.__anext__())
                except StopAsyncIteration:
                    return
                yield piece
        finally:
            drive(pieces.aclose())

    def read(self, path: Path) -> bytes:
        """Returns the contents of a file."""
        return drive(self._inner.read(path))

    def read_text(self, path: Path, *, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the contents of a file as text."""
        return drive(self._inner.read_text(path, encoding=encoding, errors=errors))

    def write(self, path: Path, data: Data, *, mode: Optional[int] = None) -> int:
        """Writes a file, and returns the number of bytes.

        The file is replaced in one step when everything has been written; until then, and after a failure, it is as it
        was. It keeps its mode and its owner; ``mode`` sets the mode. Text is encoded as UTF-8. A file object or an
        iterable is sent in pieces and never held as a whole.
        """
        return drive(self._inner.write(path, data, mode=mode))

    def list(self, path: Path = ".") -> List[FileInfo]:
        """Lists a directory, sorted by name, without ``.`` and ``..``."""
        return drive(self._inner.list(path))

    def exists(self, path: Path) -> bool:
        """Reports whether there is something at the path; a symbolic link counts, whatever it leads to."""
        return drive(self._inner.exists(path))

    def mkdir(self, path: Path) -> None:
        """Makes a directory, with the directories above it. One that exists is left as it is."""
        drive(self._inner.mkdir(path))

    def remove(self, path: Path, *, recursive: bool = False) -> None:
        """Removes a file, a symbolic link or an empty directory; with ``recursive`` a directory and all in it."""
        drive(self._inner.remove(path, recursive=recursive))
