"""Where a board's records come from: folders and files of yours, and what came with the package."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from membench.errors import UsageError
from membench.records.agreement import same_numbers
from membench.records.store import Entry, Problem, entries_of
from membench.verify.marks import with_marks
from membench_leaderboard.published import published_entries


def gather(folders: Sequence[Path], *, published: bool = True) -> tuple[list[Entry], list[str]]:
    """The records below some folders, after those that came with the package; and a sentence for each other file.

    UsageError for a path that is not there, and for two records of one trial that say different things.
    """
    mine, problems = read_entries(folders, curves=False)
    return [*(published_entries() if published else ()), *mine], problems


def read_entries(paths: Sequence[Path], *, curves: bool = True) -> tuple[list[Entry], list[str]]:
    """Folders of records, single records, and packs of them; without the curves of training if they can be spared."""
    problems: list[Problem] = []
    found = [entry for path in paths for entry in entries_of(path, problems, curves=curves)]
    refuse_contradictions(found)
    marked, doubtful = with_marks(found, paths)
    return marked, [*map(str, problems), *doubtful]


def merged(before: Iterable[Entry], new: Iterable[Entry]) -> list[Entry]:
    """Of two records of one trial, the new one."""
    return list({one.key: one for one in (*before, *new)}.values())


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
    """Copies of a record are fine, and so is what another machine makes of a trial, as far as `same_numbers` allows.

    Two records of one trial with other numbers are not, whichever came first.
    """
    seen: dict[tuple[str, int], Entry] = {}
    for entry in found:
        if not entry.record.complete:
            continue
        first = seen.setdefault(entry.key, entry)
        if not same_numbers(first.record, entry.record):
            raise UsageError(
                f"'{first.source}' and '{entry.source}' are records of one trial ({entry.record.id}, seed "
                f"{entry.record.seed}) with different numbers; keep one of them, or show their folders apart"
            )
