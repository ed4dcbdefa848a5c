"""Marks of verification: which records of a folder were rebuilt from their weights, and what was measured then.

A mark is bound to the bytes of its record: a record that is edited afterwards has lost it. Whoever shows a marked
record shows the numbers of the mark, which are those that the verifier measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from membench import __version__
from membench.errors import UsageError
from membench.records.files import NotAFile, read_regular, write_named
from membench.records.record import Record
from membench.records.store import Entry
from membench.verify.signature import SUFFIX, NotSigned, sign, signer

MARKS = "verified.json"
FORMAT = 2  # 1 did not hold what was measured
MAX_BYTES = 256 << 20


@dataclass(frozen=True)
class Mark:
    """A record that says the truth, with what was measured."""

    entry: Entry
    metrics: Mapping[str, Any]
    size: Mapping[str, Any]
    bounds: Sequence[Mapping[str, Any]]
    retrained: bool | None = None  # as in `Entry`


def with_marks(entries: Sequence[Entry], folders: Iterable[Path]) -> tuple[list[Entry], list[str]]:
    """The same entries; those whose bytes a named folder's own file of marks names have its numbers, as verified.

    A file of marks further below came with the records, and says nothing. Also a sentence for each file of marks whose
    signature is wrong: its marks do not count.
    """
    marked: dict[str, tuple[dict[str, Any], str]] = {}
    problems: list[str] = []
    for folder in folders:
        path = folder / MARKS
        try:
            content = read_regular(path, MAX_BYTES)
        except NotAFile:
            continue
        try:
            verifier = signer(path, content)
        except NotSigned as error:
            problems.append(f"the marks in '{path}' do not count: their signature is wrong ({error})")
            continue
        marked |= {str(row.get("sha256")): (row, verifier) for row in _rows(content)}
    return [_verified(one, *marked[one.sha256]) if one.sha256 in marked else one for one in entries], problems


def _verified(entry: Entry, row: Mapping[str, Any], verifier: str) -> Entry:
    """With the numbers of its mark; as it was, if these are none."""
    record = entry.record
    try:
        measured = {
            "metrics": {**record.metrics, **row["metrics"]},
            "size": {**record.size, **row["size"]},
            "bounds": list(row["bounds"]),
        }
        changed = Record.from_data({**record.to_data(), **measured})
    except (KeyError, TypeError, ValueError):
        return entry
    retrained = row.get("retrained")
    known = retrained if retrained is None else retrained is True
    return replace(entry, record=changed, verified=True, verifier=verifier, retrained=known)


def write_marks(folder: Path, marks: Iterable[Mark], key: Path | None = None) -> Path:
    """Say in the folder that these records, with the bytes that they were read from, are verified; signed by a key."""
    rows = [
        {
            "file": Path(one.entry.source).relative_to(folder).as_posix(),
            "sha256": one.entry.sha256,
            "metrics": one.metrics,
            "size": one.size,
            "bounds": list(one.bounds),
            **({} if one.retrained is None else {"retrained": one.retrained}),
        }
        for one in marks
    ]
    text = json.dumps({"format": FORMAT, "membench": __version__, "records": rows}, indent=1) + "\n"
    path = folder / MARKS
    write_named(path, text)
    if key is not None:
        sign(path, key)
    return path


def remove_marks(folder: Path) -> None:
    """All that are in a folder, and below it, with their signatures. UsageError for one that cannot be removed."""
    for path in sorted([*folder.rglob(MARKS), *folder.rglob(MARKS + SUFFIX)]):
        try:
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"cannot remove the old marks '{path}': {error.strerror or error}") from None


def _rows(content: bytes) -> list[dict[str, Any]]:
    """The rows of a file of marks; none when it is not one, since a mark in doubt is no mark."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return []
    rows = data.get("records") if isinstance(data, dict) and data.get("format") == FORMAT else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
