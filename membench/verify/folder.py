"""What a folder that comes from a stranger may hold, before anything in it is read.

A submission in a pull request is a folder of plain files, all of which its manifest lists. Links could lead anywhere,
and names could be paths, markup or options of a command.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from membench.interface.registry import NAME, NAME_WORDS
from membench.records.files import NotAFile, read_regular
from membench.records.record import read_json
from membench.verify.marks import MARKS
from membench.verify.signature import SUFFIX as SIGNATURE
from membench.verify.submission import (
    FORMAT,
    MANIFEST,
    MAX_MANIFEST,
    PLACE,
    check_manifest,
    listed_files,
    plugin_place,
)

MAX_FILES = 5000  # a row on all tracks and tasks has about a thousand
MAX_BYTES = 256 << 20  # of all files together
_UNLISTED = frozenset({MANIFEST, MARKS, MARKS + SIGNATURE})  # what is made after the manifest


def check_folder(folder: Path) -> str:
    """Why a folder is no submission that should be looked at further; empty if nothing speaks against it."""
    if not NAME.fullmatch(folder.name):
        return f"the folder is called {ascii(folder.name)[:120]}; {NAME_WORDS}"
    if folder.is_symlink() or not folder.is_dir():
        return f"'{folder.name}' is not a folder of its own"
    try:
        files = dict(_files(folder))
        listed = listed_files(read_regular(folder / MANIFEST, MAX_MANIFEST))
    except NotAFile as error:
        return f"it has no {MANIFEST} that can be read ({error}); a submission is made by: membench submit"
    except ValueError as error:
        return str(error)
    extra = sorted(files.keys() - listed.keys() - _UNLISTED)
    if extra:
        return f"{MANIFEST} does not list {extra[0]}" + (f" and {len(extra) - 1:,} more" if extra[1:] else "")
    wrong = check_manifest(folder, [])
    return next((f"{path.relative_to(folder).as_posix()}: {reason}" for path, reason in wrong.items()), "")


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Names below the folder with their sizes. ValueError for what no submission has; stops at the first."""
    count = total = 0
    for parent, folders, names in os.walk(folder):
        for name in sorted((*folders, *names)):
            path = Path(parent, name)
            place = path.relative_to(folder).as_posix()
            found = path.lstat()
            if not PLACE.fullmatch(place):
                raise ValueError(f"it holds {ascii(place)[:120]}; {NAME_WORDS}")
            if stat.S_ISDIR(found.st_mode):
                continue
            if not stat.S_ISREG(found.st_mode):
                raise ValueError(f"{place} is not a plain file; a submission holds no links, pipes or devices")
            count, total = count + 1, total + found.st_size
            if count > MAX_FILES:
                raise ValueError(f"it holds more than {MAX_FILES:,} files, the most that a submission may have")
            if total > MAX_BYTES:
                raise ValueError(f"its files have more than {MAX_BYTES:,} bytes, the most that a submission may have")
            yield place, found.st_size


def brought_plugins(folder: Path) -> tuple[str, ...]:
    """What --plugin has to be given for the plugin files that a submission brings along. ValueError for other paths."""
    data = read_json(read_regular(folder / MANIFEST, MAX_MANIFEST).decode())
    told = data.get("plugins", []) if isinstance(data, dict) and data.get("format") == FORMAT else []
    if not isinstance(told, list):
        raise ValueError(f"{MANIFEST} has plugins that are no list")
    return tuple(str(folder / plugin_place(target)) for target in told)
