"""Store: a folder of records, and the one way to read a record from a file."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from membench.errors import FileError, UsageError, cannot_write
from membench.interface.declarations import Architecture, Task
from membench.interface.origin import Code
from membench.measure.environment import versions_of
from membench.plan.trial import Point, Trial
from membench.records.files import NotAFile, NotReadable, read_regular, write_atomically
from membench.records.pack import CURVES, Damaged, NotAPack, read_pack
from membench.records.pack import SUFFIX as PACK
from membench.records.record import NewerSchema, Record
from membench.records.sharing import Sharing
from membench.records.weights import SUFFIX
from membench.temporary import remove_leftovers

NO_RECORDS = ("submission.json", "verified.json")  # what lies beside records and speaks of them
MAX_BYTES = 64 << 20  # of a record; a thousandth of it would be a large one


@dataclass(frozen=True)
class Entry:
    """A record and what is known of it beside what it says."""

    record: Record
    source: str = ""  # the file that it was read from
    sha256: str = ""  # of the bytes of that file
    published: bool = False  # it came with the package
    verified: bool = False  # its weights were checked
    verifier: str = ""  # who signed that; empty: nobody did
    retrained: bool | None = None  # whether a plugin's model was trained again to verify it; None: it is not a plugin's

    @property
    def key(self) -> tuple[str, int]:
        """What two records of one trial have in common."""
        return self.record.id, self.record.seed


class Unreadable(ValueError):
    """A file that is not a record that can be read here; the text says why, without the name of the file."""


class Refused(Unreadable):
    """A file that the system does not let us read, whatever it holds."""


class FromNewerMembench(Unreadable):
    """A record that must not be overwritten, whatever it holds."""


def read(path: Path) -> Entry:
    """The record in a file. Raises Unreadable, and nothing else, for anything that is not one."""
    return entry_of(read_bytes(path), path)


def entry_of(content: bytes, path: Path) -> Entry:
    """The record that these bytes of a file are. Raises Unreadable for anything else."""
    try:
        return Entry(Record.from_json(content.decode()), str(path), hashlib.sha256(content).hexdigest())
    except NewerSchema as error:
        raise FromNewerMembench(str(error)) from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"it is not a whole JSON file ({error.msg}, line {error.lineno})") from None
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8 text") from None
    except (ValueError, TypeError) as error:
        raise Unreadable(str(error)) from None


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """What is in a regular file of sensible size. Raises Unreadable."""
    try:
        return read_regular(path, most)
    except NotReadable as error:
        raise Refused(str(error)) from None
    except NotAFile as error:
        raise Unreadable(str(error)) from None


class Problem(NamedTuple):
    """A file, or a line of a pack, that is no record."""

    source: str
    reason: str

    def __str__(self) -> str:
        return f"skipped '{self.source}': {self.reason}"


def read_packed(path: Path, problems: list[Problem], *, curves: bool = True) -> Iterator[Entry]:
    """The records of a pack; what it says of their verification is not believed. Raises Unreadable for what is none."""
    try:
        for one in read_pack(path, curves=curves):
            if isinstance(one, Damaged):
                problems.append(Problem(f"{path}:{one.line}" if one.line else str(path), one.reason))
            else:
                yield Entry(one.record, str(path))
    except NotReadable as error:
        raise Refused(str(error)) from None
    except (NotAPack, NotAFile) as error:
        raise Unreadable(str(error)) from None


@dataclass(frozen=True)
class Store:
    """A folder of records: results/<task>/<architecture>/<id>-s<seed>.json, and packs at its top.

    The file of a trial counts before a pack that has it too: it is the later one.
    """

    root: Path

    def folder(self, point: Point) -> Path:
        return self.root / point.task / point.architecture

    def path(self, trial: Trial) -> Path:
        return self.place(trial.point, trial.seed)

    def place(self, point: Point, seed: int) -> Path:
        return self.folder(point) / f"{point.id}-s{seed}.json"

    def find(self, trial: Trial) -> Record | None:
        """The record of a finished trial, if it is of the code that is here; see `why_stale`."""
        record = self._finished(trial)
        return record if record is not None and not other_code(trial, record) else None

    def why_stale(self, trial: Trial) -> str:
        """What changed since a trial was finished, so that it has to be measured again; empty if nothing did."""
        record = self._finished(trial)
        return "" if record is None else other_code(trial, record)

    def _finished(self, trial: Trial) -> Record | None:
        record = self.latest(trial)
        if record is not None and record.complete and (record.id, record.seed) == (trial.id, trial.seed):
            return record
        return self._packed.get((trial.id, trial.seed))

    def latest(self, trial: Trial) -> Record | None:
        """The record of a trial, finished or not, of whatever code it is. UsageError for one of a newer membench."""
        path = self.path(trial)
        try:
            return read(path).record
        except FromNewerMembench as error:
            raise UsageError(f"'{path}' {error}") from None
        except Unreadable:  # it is not there, or no longer a record
            return self._packed.get((trial.id, trial.seed))

    @cached_property
    def _packed(self) -> dict[tuple[str, int], Record]:
        """The finished trials in packs."""
        found: dict[tuple[str, int], Record] = {}
        for path in self.packs():
            try:
                found.update({one.key: one.record for one in read_packed(path, []) if one.record.complete})
            except Unreadable:
                continue
        return found

    def write(self, trial: Trial, record: Record, weights: bytes | None = None) -> Path:
        """Weights first, so that a record that names weights has them."""
        path = self.path(trial)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if weights is not None:
                write_atomically(path.with_suffix(SUFFIX), weights)
            write_atomically(path, record.to_json())
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror or error}; finished trials are kept", str(path)) from None
        return path

    def check(self) -> None:
        """An error unless the folder can be written to. What killed runs left half-written is removed."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
            remove_leftovers(self.root)
        except OSError as error:
            raise cannot_write(self.root, error, "choose another folder with --out", "records to") from None

    def files(self) -> Iterator[Path]:
        if self.root.is_dir():
            os.scandir(self.root).close()  # OSError for a folder that cannot be read, which would look empty
        return (path for path in sorted(self.root.rglob("*.json"), key=os.fspath) if path.name not in NO_RECORDS)

    def packs(self) -> list[Path]:
        return sorted(self.root.glob(f"*{PACK}"))

    def entries(self, problems: list[Problem], *, curves: bool = True) -> Iterator[Entry]:
        """Every record; what they have in common is held once. Without the curves of training if they can be spared."""
        sharing, finished = Sharing(), set()
        for file in self.files():
            try:
                entry = read(file)
            except Unreadable as error:
                problems.append(Problem(str(file), str(error)))
                continue
            record = sharing.of(entry.record if curves else without_curves(entry.record))
            if record.complete:
                finished.add(entry.key)
            yield replace(entry, record=record)
        for path in self.packs():
            try:
                yield from (one for one in read_packed(path, problems, curves=curves) if one.key not in finished)
            except Unreadable as error:
                problems.append(Problem(str(path), str(error)))


def without_curves(record: Record) -> Record:
    """Without the curves of its training, which are half of what it takes in memory."""
    return replace(record, trace={name: value for name, value in record.trace.items() if name not in CURVES})


def entries_of(path: Path, problems: list[Problem], *, curves: bool = True) -> Iterator[Entry]:
    """Of a folder, a record or a pack.

    Somebody named it: UsageError for a file that is not what its name says, FileError for one that cannot be read.
    """
    if not path.exists():
        raise UsageError(f"'{path}' does not exist; records are written by: membench run")
    try:
        if path.is_dir():
            yield from Store(path).entries(problems, curves=curves)
        elif path.suffix == PACK:
            yield from read_packed(path, problems, curves=curves)
        else:
            yield read(path)
    except Refused as error:
        raise FileError(f"'{path}': {error}") from None
    except Unreadable as error:
        raise UsageError(f"'{path}' is not a {'pack' if path.suffix == PACK else 'record'}: {error}") from None


def other_code(trial: Trial, record: Record) -> str:
    """Why a record is of other code than a trial would run now; empty when it is of the same."""
    parts = ((trial.architecture, record.architecture), (trial.task, record.task))
    changed = (changed_code(item, part) for item, part in parts)
    return next(filter(None, [*changed, _changed_package(trial.architecture, record)]), "")


def _changed_package(architecture: Architecture[Any], record: Record) -> str:
    """Which package that an architecture wraps has another version now: its layers may be others, too."""
    for name, version in versions_of(architecture.packages).items():
        if (was := record.environment.get(name)) != version:
            return f"{name} is {version}, and was {was or 'not noted'}"
    return ""


def changed_code(item: Architecture[Any] | Task[Any] | Code, part: Mapping[str, Any]) -> str:
    """What is another in the code behind one name.

    The numbers of built-ins are watched by a regression gate, and their versions are raised when numbers change: the
    version of membench says nothing of them.
    """
    if part.get("version") != item.version:
        return f"{item.name} is version {item.version}, and was {part.get('version')}"
    if item.origin.is_built_in and part.get("distribution") in (item.origin.distribution, None):
        return ""
    if part.get("code_sha256") != item.origin.code_sha256:
        return f"the code of {item.name} is not the code that was measured"
    if part.get("distribution_version") != item.origin.version:
        return f"{item.origin.distribution} is {item.origin.version}, and was {part.get('distribution_version')}"
    return ""
