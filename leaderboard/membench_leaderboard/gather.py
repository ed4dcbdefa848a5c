"""Where a board's records come from: folders and files of yours, and what came with the package."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from membench.errors import FileError, UsageError
from membench.records.store import Entry, Refused, Store, Unreadable, read, read_bytes
from membench.verify.marks import with_marks
from membench_leaderboard.published import published_entries
from membench_leaderboard.published.compact import expand


def gather(folders: Sequence[Path], *, published: bool = True) -> tuple[list[Entry], list[str]]:
    """The records below some folders, after those that came with the package; and a sentence for each other file.

    UsageError for a path that is not there, and for two records of one trial that say different things.
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
    marked, doubtful = with_marks(found, paths)
    return marked, [*problems, *doubtful]


def _in_folder(folder: Path, problems: list[str]) -> Iterator[Entry]:
    for file in Store(folder).files():
        try:
            yield read(file)
        except Unreadable as error:
            problems.append(f"skipped '{file}': {error}")


def _in_file(file: Path) -> list[Entry]:
    """A file that somebody names has to be what it is taken for."""
    try:
        if file.suffix == ".jsonl":
            stored = expand(read_bytes(file).decode(), file.name)
            return [replace(one, source=str(file), published=False, verified=False, verifier="") for one in stored]
        return [read(file)]
    except Refused as error:
        raise FileError(f"'{file}': {error}") from None
    except ValueError as error:  # Unreadable, or not text
        raise UsageError(f"'{file}' is not a record: {error}") from None


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


def refuse_contradictions(found: Iterable[Entry]) -> None:
    """Copies of a record are fine; two records of one trial with different numbers are not, whichever came first."""
    seen: dict[tuple[str, int], Entry] = {}
    for entry in found:
        if not entry.record.complete:
            continue
        first = seen.setdefault(entry.key, entry)
        if first.record.metrics != entry.record.metrics or first.record.size != entry.record.size:
            raise UsageError(
                f"'{first.source}' and '{entry.source}' are records of one trial ({entry.record.id}, seed "
                f"{entry.record.seed}) with different numbers; keep one of them, or show their folders apart"
            )
