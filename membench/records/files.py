"""Files: those that are written whole or not at all, and those that are read only if they are files."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


class NotAFile(ValueError):
    """What cannot be read, or should not be; the text says why, without its name."""


class NotReadable(NotAFile):
    """What the system does not let us read: nobody named the wrong file."""


def read_regular(path: Path, most: int) -> bytes:
    """What is in a regular file of sensible size: reading a device or a pipe might never end. Raises NotAFile."""
    try:
        # without blocking: opening a pipe that nobody writes to would wait for ever
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise NotAFile("it is not a regular file")
            if found.st_size > most:
                raise NotAFile(f"it has {found.st_size:,} bytes, and at most {most:,} are read")
            return file.read(most)
    except IsADirectoryError:
        raise NotAFile("it is not a regular file") from None
    except (OSError, ValueError) as error:
        if isinstance(error, NotAFile):
            raise
        raise NotReadable(f"it cannot be read: {getattr(error, 'strerror', None) or error}") from None


def write_atomically(path: Path, content: str | bytes) -> None:
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
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes it private; records are to be shared
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
