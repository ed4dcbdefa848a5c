"""Files: those that are written whole or not at all, and those that are read only if they are files."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO


class NotAFile(ValueError):
    """What cannot be read, or should not be; the text says why, without its name."""


def read_regular(path: Path, most: int) -> bytes:
    """What is in a regular file of sensible size. Raises NotAFile."""
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            raise NotAFile(f"it has {size:,} bytes, and at most {most:,} are read")
        try:
            return file.read(most)
        except OSError as error:
            raise _unreadable(error) from None


def open_regular(path: Path) -> BinaryIO:
    """A regular file, to be read: reading a device or a pipe might never end. Raises NotAFile."""
    try:
        # without blocking: opening a pipe that nobody writes to would wait for ever
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        raise _unreadable(error) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotAFile("it is not a regular file")
    return os.fdopen(handle, "rb")


def _unreadable(error: Exception) -> NotAFile:
    return NotAFile(f"it cannot be read: {getattr(error, 'strerror', None) or error}")


def write_atomically(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """A reader sees the old file or the new one, never a part, whatever happens in between.

    What a symbolic link leads to is replaced, and the link stays. OSError for anything there that is not a regular
    file: a device or a pipe is no file to be replaced.
    """
    path = Path(os.path.realpath(path))
    if os.path.lexists(path) and not path.is_file():
        raise OSError(None, "it is not a regular file")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            if isinstance(content, (str, bytes)):
                file.write(content.encode("utf-8") if isinstance(content, str) else content)
            else:
                file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes it private; records are to be shared
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
