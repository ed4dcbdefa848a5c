"""Temporary files and folders, each locked by the process that uses it: what a dead one left is known by that.

Neither clocks nor process numbers are asked, which jump and come again. Where a file system knows no locks, nothing
that may belong to somebody is removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

SUFFIX = ".part"
_NAME = re.compile(rf"\.(.+)\.[a-z0-9_]{{8}}{re.escape(SUFFIX)}")


@contextmanager
def temporary_file(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside `target`, to be written and renamed to it; it is removed if that fails."""
    path, handle = _held(lambda: tempfile.mkstemp(dir=target.parent, prefix=_prefix(target), suffix=SUFFIX))
    with os.fdopen(handle, "wb") as file:  # closed at last: the lock ends with it
        try:
            yield path, file
        except BaseException:
            with suppress(OSError):  # the folder may be gone with it
                path.unlink()
            raise


@contextmanager
def temporary_folder(target: Path | None = None) -> Iterator[Path]:
    """A new folder beside `target`, which may be renamed to it, or one where the system keeps such folders.

    It is removed at the end, and so are those that killed processes have left there.
    """
    target = target or Path(tempfile.gettempdir(), "membench")
    remove_leftovers(target.parent, target.name, below=False)

    def make() -> tuple[int, str]:
        path = tempfile.mkdtemp(dir=target.parent, prefix=_prefix(target), suffix=SUFFIX)
        with suppress(FileNotFoundError):  # whoever cleans up may be faster
            return os.open(path, os.O_RDONLY), path
        return make()

    path, handle = _held(make)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


def remove_leftovers(folder: Path, name: str = "", *, below: bool = True) -> None:
    """What processes that were killed have left in a folder, and below it; of one target only if its name is given."""
    for parent, folders, files in os.walk(folder):
        temporary = [one for one in [*folders, *files] if (match := _NAME.fullmatch(one)) and _is_of(match[1], name)]
        for one in temporary:
            _remove(Path(parent, one))
        if not below:
            return
        folders[:] = [one for one in folders if one not in temporary]


LONGEST = 100  # letters of a target's name: with the rest, no more than any file system allows


def _is_of(found: str, name: str) -> bool:
    return not name or found == name[:LONGEST]


def _prefix(target: Path) -> str:
    return f".{target.name[:LONGEST]}."


def _held(make: Callable[[], tuple[int, str]]) -> tuple[Path, int]:
    """What was made, and a handle that has its lock. Another process may have removed it before that."""
    while True:
        handle, path = make()
        if _lock(handle) is not False and _is_there(path, handle):
            return Path(path), handle
        os.close(handle)


def _lock(handle: int) -> bool | None:
    """Whether we have it now, and nobody else; None where the file system knows no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        return False if error.errno in (errno.EAGAIN, errno.EACCES) else None


def _is_there(path: str | Path, handle: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(handle))
    except OSError:
        return False


def _remove(path: Path) -> None:
    with suppress(OSError):
        found = path.lstat()
        is_folder = stat.S_ISDIR(found.st_mode)
        if not (is_folder or stat.S_ISREG(found.st_mode)) or found.st_uid != os.getuid():
            return
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if _lock(handle) and _is_there(path, handle):
                shutil.rmtree(path, ignore_errors=True) if is_folder else path.unlink()
        finally:
            os.close(handle)
