"""Store: a folder of records, in which a finished trial is found again by its identity."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from membench.errors import UsageError
from membench.plan.trial import Point, Trial
from membench.records.files import write_atomically
from membench.records.record import SCHEMA, NewerSchema, Record
from membench.records.weights import SUFFIX

NO_RECORDS = ("submission.json", "verified.json")  # what lies beside records and speaks of them
_SCHEMA_AT_START = re.compile(rb'\s*\{\s*"schema"\s*:\s*(\d+)')


@dataclass(frozen=True)
class Store:
    """A folder of records: results/<task>/<architecture>/<id>-s<seed>.json."""

    root: Path

    def folder(self, point: Point) -> Path:
        return self.root / point.task / point.architecture

    def path(self, trial: Trial) -> Path:
        return self.folder(trial.point) / f"{trial.id}-s{trial.seed}.json"

    def find(self, trial: Trial) -> Record | None:
        """The record of a finished trial; None when it is not there, failed, or cannot be read."""
        try:
            record = Record.from_json(self.path(trial).read_text("utf-8"))
        except NewerSchema as error:
            raise UsageError(f"'{self.path(trial)}' {error}") from None
        except (OSError, ValueError):
            return None
        return record if record.complete and record.id == trial.id and record.seed == trial.seed else None

    def write(self, trial: Trial, record: Record, weights: bytes | None = None) -> Path:
        """Weights first, so that a record that names weights has them."""
        path = self.path(trial)
        path.parent.mkdir(parents=True, exist_ok=True)
        if weights is not None:
            write_atomically(path.with_suffix(SUFFIX), weights)
        write_atomically(path, record.to_json())
        return path

    def check(self) -> None:
        """UsageError unless the folder can be written to and holds nothing from a newer membench."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise UsageError(
                f"cannot write records to '{self.root}': {error.strerror or error}; choose another folder with --out"
            ) from None
        for path in self.files():
            with path.open("rb") as file:
                found = _SCHEMA_AT_START.match(file.read(64))
            if found and int(found[1]) > SCHEMA:
                raise UsageError(f"'{path}' {NewerSchema(int(found[1]))}")

    def files(self) -> Iterator[Path]:
        return (path for path in sorted(self.root.rglob("*.json"), key=os.fspath) if path.name not in NO_RECORDS)
