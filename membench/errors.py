"""What can go wrong, and the exit code that each kind means to a shell."""

from __future__ import annotations

import difflib
import errno
import os
import traceback
from collections.abc import Collection, Iterable
from pathlib import Path

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
NOT_ALL_VERIFIED = 4  # nothing is wrong, but not everything could be checked


class MembenchError(Exception):
    """A mistake that the user can mend; its text is shown as it is, without a traceback."""

    exit_code = 2


class UsageError(MembenchError):
    """A name, option, value or path that cannot be used."""


class Impossible(UsageError):
    """What was asked for cannot be done here, whatever the trial: no device of that name. Ends the whole run."""


class PluginError(MembenchError):
    """A plugin that was asked for did not load, or trials failed."""

    exit_code = 3


class FileError(MembenchError):
    """A file that the system does not let us read or write."""

    exit_code = 3


class NotApplicable(Exception):
    """Raised by a bound, construction or kernel for a setting that it does not cover; its text is the reason."""


class BudgetTooSmall(ValueError):
    """Raised by an architecture's `for_budget`: its smallest model has `least` parameters, more than it may have."""

    def __init__(self, least: int) -> None:
        super().__init__(f"at least {least} parameters are needed")
        self.least = least


def unknown(kind: str, name: str, known: Iterable[str], listing: str) -> UsageError:
    """The error for a name that does not exist: says the nearest one and how to list them all."""
    names = {one.lower(): one for one in sorted(known)}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean '{names[near[0]]}'? " if near else ""
    return UsageError(f"unknown {kind} '{name[:100]}'; {hint}{listing}")


# What is wrong with the name that somebody gave; anything else, such as a full disk, is nobody's mistake.
_WRONG_NAME = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)


def cannot_write(path: Path, error: OSError, hint: str = "", what: str = "") -> MembenchError:
    """The error for what could not be written, in one sentence that names it."""
    kind = UsageError if error.errno in _WRONG_NAME else FileError
    named = f"{what} '{path}'" if what else f"'{path}'"
    return kind(f"cannot write {named}: {error.strerror or error}{f'; {hint}' if hint else ''}")


def in_words(error: BaseException, most: int = 300) -> str:
    """An error of a plugin on one line: its kind and its text, which may fail to make itself."""
    try:
        text = " ".join(str(error).split())[:most]
    except Exception:
        text = "its text cannot be shown"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place(error: BaseException, own: Collection[Path] = ()) -> str:
    """In brackets, where an error last went through somebody's own files, or not membench's if none are known.

    Empty where it went through none: membench itself found something wrong, and its text says it all.
    """
    frames = traceback.extract_tb(error.__traceback__)
    files = {os.path.realpath(one) for one in own}
    theirs = [one for one in frames if os.path.realpath(one.filename) in files]
    others = [one for one in frames if not one.filename.startswith(HERE)]
    last = next(reversed(theirs if files else others), None)
    return f" ({os.path.basename(last.filename)}, line {last.lineno})" if last else ""
