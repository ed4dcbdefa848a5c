"""Where a board's records come from: folders and files of yours, and what came with the package."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from membench.errors import UsageError
from membench.records.record import NewerSchema, Record
from membench.records.store import Store
from membench.verify.marks import verified_ids
from membench_leaderboard.frame import Entry
from membench_leaderboard.published import published_entries
from membench_leaderboard.published.compact import expand

_UNREADABLE = (OSError, ValueError, TypeError, RecursionError)


def gather(folders: Sequence[Path], *, published: bool = True) -> tuple[list[Entry], list[str]]:
    """The records below some folders, after those that came with the package; and a sentence for each other file.

    UsageError for a path that is not there, a record of a newer membench, and two records of one trial that
    say different things.
    """
    mine, problems = read_entries(folders)
    return [*(published_entries() if published else ()), *mine], problems


def read_entries(paths: Sequence[Path]) -> tuple[list[Entry], list[str]]:
    """Folders of records, single records, and compact files of them."""
    found: list[Entry] = []
    problems: list[str] = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"'{path}' does not exist; records are written by: membench run")
        found += _in_folder(path, problems) if path.is_dir() else _in_file(path)
    refuse_contradictions(found)
    marked = verified_ids(*paths)
    return [replace(one, verified=True) if _key(one) in marked else one for one in found] if marked else found, problems


def _in_folder(folder: Path, problems: list[str]) -> Iterator[Entry]:
    for file in Store(folder).files():
        try:
            yield _entry(file)
        except _UNREADABLE as error:
            problems.append(f"skipped '{file}': {_reason(error)}")


def _in_file(file: Path) -> list[Entry]:
    """A file that somebody names has to be what it is taken for."""
    try:
        if file.suffix == ".jsonl":
            stored = expand(file.read_text("utf-8"), file.name)
            return [replace(one, source=str(file), published=False, verified=False) for one in stored]
        return [_entry(file)]
    except _UNREADABLE as error:
        raise UsageError(f"'{file}' is not a record: {_reason(error)}") from None


def _entry(file: Path) -> Entry:
    try:
        return Entry(Record.from_json(file.read_bytes().decode()), str(file))  # twice as fast as to read text
    except NewerSchema as error:
        raise UsageError(f"'{file}' {error}") from None


@contextmanager
def no_collection() -> Iterator[None]:
    """For reading and ranking many records: a million objects without cycles, which nobody has to go through."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"not a whole JSON file ({error.msg}, line {error.lineno})"
    return str(error)


def _key(entry: Entry) -> tuple[str, int]:
    return entry.record.id, entry.record.seed


def refuse_contradictions(found: Iterable[Entry]) -> None:
    """Copies of a record are fine; two records of one trial with different numbers are not, whichever came first."""
    seen: dict[tuple[str, int], Entry] = {}
    for entry in found:
        if not entry.record.complete:
            continue
        first = seen.setdefault(_key(entry), entry)
        if first.record.metrics != entry.record.metrics or first.record.size != entry.record.size:
            raise UsageError(
                f"'{first.source}' and '{entry.source}' are records of one trial ({entry.record.id}, seed "
                f"{entry.record.seed}) with different numbers; keep one of them, or show their folders apart"
            )
