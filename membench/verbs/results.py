"""What `membench results` does: folders and packs of records are merged, checked and packed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from membench.errors import MembenchError, UsageError
from membench.interface.registry import NAME
from membench.plan.trial import Point
from membench.records import weights
from membench.records.agreement import same_numbers
from membench.records.files import make_parent, write_atomically
from membench.records.pack import SUFFIX as PACK
from membench.records.pack import Packed, write_pack
from membench.records.record import Record
from membench.records.store import Entry, Problem, Store, Unreadable, entries_of, read_bytes, without_curves


class SomethingWrong(MembenchError):
    """Of the records themselves, and not of how membench was called."""

    exit_code = 3


@dataclass
class Merged:
    """What became of the records of some folders and packs."""

    into: Path
    added: int = 0
    there: int = 0  # already, or several times
    weights: int = 0
    problems: list[Problem] = field(default_factory=list)
    conflicts: list[Problem] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        counts = {"added": self.added, "there": self.there, "weights": self.weights}
        return {
            "into": str(self.into),
            **counts,
            "conflicts": _plain(self.conflicts),
            "problems": _plain(self.problems),
        }

    def fail_if_any(self) -> None:
        """SomethingWrong when a record was left out."""
        if left_out := len(self.problems) + len(self.conflicts):
            raise SomethingWrong(f"{left_out} left out, of which {len(self.conflicts)} contradict others")


def merge(sources: Sequence[Path], into: Path) -> Merged:
    """Bring the records of folders and packs into one folder, or into a new pack if `into` ends in .jsonl.

    Weights come along to a folder. Nothing is overwritten but failed tries of a trial that succeeded elsewhere; a
    record that contradicts one that is there is left out, and named.
    """
    if into.suffix == PACK:
        return pack(sources, into)
    merged, store, held = Merged(into), Store(into), _Held()
    store.check()
    for entry in entries_of(into, []):
        held.take(entry)
    for entry in _new(sources, held, merged):
        _write(entry, store, merged)
    return merged


def pack(sources: Sequence[Path], out: Path) -> Merged:
    """Write the records of folders and packs as one new file. UsageError for a name that is taken, or has no .jsonl."""
    if out.suffix != PACK:
        raise UsageError(f"cannot pack into '{out}': the name of a pack ends in {PACK}")
    if out.exists():
        raise UsageError(f"'{out}' already exists; choose another file, or remove it first")
    merged = Merged(out)
    make_parent(out)
    write_pack(out, (Packed(entry.record) for entry in _counted(_new(sources, _Held(), merged), merged)))
    return merged


def _counted(entries: Iterable[Entry], merged: Merged) -> Iterator[Entry]:
    for entry in entries:
        merged.added += 1
        yield entry


@dataclass
class _Held:
    """The records that are there, by trial: a finished one where there is one."""

    found: dict[tuple[str, int], tuple[str, Record]] = field(default_factory=dict)

    def take(self, entry: Entry) -> str:
        """`new` if it is to be added, `there` if its trial has a record that agrees; else what it contradicts."""
        record = without_curves(entry.record)
        source, first = self.found.setdefault(entry.key, (entry.source, record))
        if first is record or (record.complete and not first.complete):
            self.found[entry.key] = entry.source, record
            return "new"
        return "there" if not record.complete or same_numbers(first, record) else source


def _new(sources: Sequence[Path], held: _Held, merged: Merged) -> Iterator[Entry]:
    """The records of the sources that are not there yet."""
    for entry in (entry for path in sources for entry in entries_of(path, merged.problems)):
        if reason := _why_not_itself(entry.record):
            merged.problems.append(Problem(entry.source, reason))
            continue
        outcome = held.take(entry)
        if outcome == "new":
            yield entry
        elif outcome == "there":
            merged.there += 1
            _bring_weights(entry, merged)
        else:
            merged.conflicts.append(Problem(entry.source, _contradiction(entry.record, outcome)))


def _contradiction(record: Record, source: str) -> str:
    return f"'{source}' has other numbers for the same trial ({record.id}, seed {record.seed})"


def _why_not_itself(record: Record) -> str:
    """Why a record cannot be of the trial that it says it is; empty if it can. Its names become part of a path."""
    for text in (record.task["name"], record.architecture["name"]):
        if not NAME.fullmatch(text):
            return f"{ascii(text)[:100]} is not a name"
    if (own := Point.of(record).id) != record.id:
        return f"its id is {ascii(record.id)[:40]}, and that of its content {own}"
    return ""


def _write(entry: Entry, store: Store, merged: Merged) -> None:
    """The bytes of its file as they are, so that their digest stays; a record of a pack becomes a file."""
    try:
        content = read_bytes(Path(entry.source)) if entry.sha256 else entry.record.to_json().encode()
    except Unreadable as error:
        merged.problems.append(Problem(entry.source, str(error)))
        return
    place = _place(entry, store)
    place.parent.mkdir(parents=True, exist_ok=True)
    _bring_weights(entry, merged)
    write_atomically(place, content)
    merged.added += 1


def _place(entry: Entry, store: Store) -> Path:
    return store.place(Point.of(entry.record), entry.record.seed)


def _bring_weights(entry: Entry, merged: Merged) -> None:
    """Weights before their record, so that a record that names weights has them; also to a record that lacks them."""
    named = entry.record.weights
    place = _place(entry, Store(merged.into))
    target = place.with_suffix(weights.SUFFIX)
    if not named or not entry.sha256 or merged.into.suffix == PACK or target.exists():
        return
    try:
        content = weights.read(named, Path(entry.source))
    except ValueError as error:
        merged.problems.append(Problem(entry.source, str(error)))
        return
    write_atomically(target, content)
    merged.weights += 1


@dataclass
class Checked:
    """What is in some folders and packs, and what is wrong with it."""

    statuses: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)

    @property
    def records(self) -> int:
        return self.statuses.total()

    def as_json(self) -> dict[str, Any]:
        return {"records": self.records, **self.statuses, "problems": _plain(self.problems)}

    def fail_if_any(self) -> None:
        if self.problems:
            raise SomethingWrong(f"{len(self.problems)} of {self.records + len(self.problems)} are wrong")


def check(paths: Sequence[Path]) -> Checked:
    """Read every record: is it whole, of the trial that it says, does it agree with others, has it its weights?"""
    checked, held = Checked(Counter(complete=0, failed=0)), _Held()
    for entry in (entry for path in paths for entry in entries_of(path, checked.problems)):
        checked.statuses["complete" if entry.record.complete else "failed"] += 1
        if reason := _why_wrong(entry, held):
            checked.problems.append(Problem(entry.source, reason))
    return checked


def _why_wrong(entry: Entry, held: _Held) -> str:
    if reason := _why_not_itself(entry.record):
        return reason
    outcome = held.take(entry)
    if outcome not in ("new", "there"):
        return _contradiction(entry.record, outcome)
    if entry.record.weights and entry.sha256:  # a pack holds no weights
        try:
            weights.read(entry.record.weights, Path(entry.source))
        except ValueError as error:
            return str(error)
    return ""


def _plain(problems: Iterable[Problem]) -> list[dict[str, str]]:
    return [{"source": one.source, "reason": one.reason} for one in problems]
