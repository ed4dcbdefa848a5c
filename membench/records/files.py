"""Files: those that are written whole or not at all, and those that are read only if they are files."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".part"
FRESH = 1.0  # seconds: a file that was just made may not be locked yet
_LEFTOVER = re.compile(rf"\..+\.(json|jsonl|safetensors)\.[a-z0-9_]{{8}}{re.escape(TEMPORARY)}")


class NotAFile(ValueError):
    """What cannot be read, or should not be; the text says why, without its name."""


class NotReadable(NotAFile):
    """What the system does not let us read: nobody named the wrong file."""


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


def _unreadable(error: Exception) -> NotReadable:
    return NotReadable(f"it cannot be read: {getattr(error, 'strerror', None) or error}")


def write_atomically(path: Path, content: str | bytes | Iterable[bytes]) -> None:
    """A reader sees the old file or the new one, never a part, whatever happens in between.

    What a symbolic link leads to is replaced, and the link stays. OSError for anything there that is not a regular
    file: a device or a pipe is no file to be replaced.
    """
    path = Path(os.path.realpath(path))
    if os.path.lexists(path) and not path.is_file():
        raise OSError(None, "it is not a regular file")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as file:
            _lock(handle)  # until it has its name, so that `remove_leftovers` can tell that somebody is at work on it
            if isinstance(content, (str, bytes)):
                file.write(content.encode("utf-8") if isinstance(content, str) else content)
            else:
                file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(temporary, 0o644)  # mkstemp makes it private; records are to be shared
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):  # the folder may be gone with it
            os.unlink(temporary)
        raise


def _lock(handle: int) -> bool:
    """Whether nobody else has it; False also where a file system knows no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


def remove_leftovers(folder: Path) -> None:
    """Temporary files of `write_atomically` whose writers were killed, below a folder; what somebody writes stays."""
    for parent, _, names in os.walk(folder):
        for name in names:
            if _LEFTOVER.fullmatch(name):
                _remove_leftover(Path(parent, name))


def _remove_leftover(path: Path) -> None:
    with suppress(OSError):
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or time.time() - found.st_mtime < FRESH:
            return
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if _lock(handle):
                path.unlink()
        finally:
            os.close(handle)
