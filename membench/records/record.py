"""Records: one JSON file per trial, written whole or not at all, and found again by the trial's identity."""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from membench.errors import UsageError
from membench.trial import Point, Trial

SCHEMA = 1
NO_RECORDS = ("submission.json", "verified.json")  # what lies beside records and speaks of them
_SCHEMA_AT_START = re.compile(rb'\s*\{\s*"schema"\s*:\s*(\d+)')
_SHAPES: dict[str, type | tuple[type, ...]] = {
    "id": str, "seed": int, "status": str, "architecture": dict, "task": dict, "protocol": dict,
    "metrics": dict, "size": dict, "bounds": list, "trace": dict, "environment": dict, "git": dict, "run": dict,
    "error": (str, type(None)), "weights": (dict, type(None)),
}  # fmt: skip
_REQUIRED = {
    "architecture": ("name", "config"),
    "task": ("name", "version", "config"),
    "protocol": ("name", "version", "config"),
}


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a trial leaves. The first field stays first, so that a schema is known from a file's first bytes."""

    schema: int = SCHEMA
    id: str
    seed: int
    status: str  # complete or failed
    architecture: dict[str, Any]  # name, distribution, version, commit, config
    task: dict[str, Any]  # name, version, config, data_sha256
    protocol: dict[str, Any]  # name, version, config
    metrics: dict[str, float | None] = field(default_factory=dict)
    size: dict[str, Any] = field(default_factory=dict)
    bounds: list[dict[str, Any]] = field(default_factory=list)
    trace: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    git: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    weights: dict[str, Any] | None = None  # file (beside the record), sha256, bytes; None when they were not kept

    @property
    def complete(self) -> bool:
        return self.status == "complete"

    def proven(self, quantity: str) -> tuple[float, str]:
        """The most of a quantity that theory guarantees, and the bound that does; NaN when none does."""
        found = [
            (bound["value"], str(bound.get("name")))
            for bound in self.bounds
            if isinstance(bound, dict)
            and bound.get("quantity") == quantity
            and bound.get("direction") == "lower"
            and bound.get("status", "applies") == "applies"
            and isinstance(bound.get("value"), (int, float))
        ]
        return max(found, default=(math.nan, ""))

    def baseline(self, name: str) -> float:
        """The value of a bound by its name; NaN when there is none."""
        values = [bound.get("value") for bound in self.bounds if isinstance(bound, dict) and bound.get("name") == name]
        return float(values[0]) if values and isinstance(values[0], (int, float)) else math.nan

    def to_json(self) -> str:
        return json.dumps(_without_nan(asdict(self)), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        """ValueError, in words, for anything that is not a record of this schema or an older one."""
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("schema"), int):
            raise ValueError("not a membench record")
        if data["schema"] > SCHEMA:
            raise NewerSchema(data["schema"])
        record = _checked({name: value for name, value in data.items() if name in _FIELDS})
        return cls(**record)


_FIELDS = frozenset(one.name for one in fields(Record))


class NewerSchema(ValueError):
    """A record that a newer membench wrote."""

    def __init__(self, schema: int) -> None:
        super().__init__(f"has record schema {schema}, but this membench reads up to {SCHEMA}; upgrade membench")


def _checked(data: dict[str, Any]) -> dict[str, Any]:
    for name, kind in _SHAPES.items():
        if name in data and not isinstance(data[name], kind):
            raise ValueError(f"its {name} is a {type(data[name]).__name__}")
    missing = [name for name in ("id", "seed", "status", *_REQUIRED) if name not in data]
    missing += [f"{part}.{key}" for part, keys in _REQUIRED.items() for key in keys if key not in data.get(part, ())]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    if any(not isinstance(value, (int, float, type(None))) for value in data.get("metrics", {}).values()):
        raise ValueError("its metrics are not numbers")
    return data


def _without_nan(value: Any) -> Any:
    """NaN and infinities as null: JSON has no word for them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _without_nan(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(one) for one in value]
    return value


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

    def write(self, trial: Trial, record: Record) -> Path:
        path = self.path(trial)
        path.parent.mkdir(parents=True, exist_ok=True)
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


def write_atomically(path: Path, content: str | bytes) -> None:
    """A reader sees the old file or the new one, never a part, whatever happens in between."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes it private; records are to be shared
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
