"""Record: what a trial leaves, as one JSON object."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

SCHEMA = 1
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
