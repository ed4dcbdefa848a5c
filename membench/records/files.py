"""Files: those that are written whole or not at all, and those that are read only if they are files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from membench.errors import cannot_write
from membench.temporary import remove_leftovers, temporary_file


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

    What a symbolic link leads to is replaced, and the link stays. OSError, which names the file, also for anything
    there that is not a regular file: a device or a pipe is no file to be replaced.
    """
    if path.exists() and not path.is_file():  # first: where the link of a standard stream to a pipe leads has no path
        raise OSError(None, "it is not a regular file", str(path))
    target = Path(os.path.realpath(path))
    if os.path.lexists(target) and not target.is_file():
        raise OSError(None, "it is not a regular file", str(path))
    try:
        with temporary_file(target) as (temporary, file):
            if isinstance(content, (str, bytes)):
                file.write(content.encode("utf-8") if isinstance(content, str) else content)
            else:
                file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(temporary, 0o644)  # it was made private; records are to be shared
            os.replace(temporary, target)
    except OSError as error:  # a full disk does not say where it is, and nobody knows the temporary name
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


def write_named(path: Path, content: str | bytes | Iterable[bytes], hint: str = "", what: str = "") -> None:
    """The same for a file that somebody asked for: what killed writers left of it goes, and a failure is a sentence."""
    remove_leftovers(path.parent, path.name, below=False)
    try:
        write_atomically(path, content)
    except OSError as error:
        raise cannot_write(path, error, hint, what) from None


def make_parent(path: Path, what: str = "") -> None:
    """The folder that a file is to be in; the sentence is about the file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error, what=what) from None
