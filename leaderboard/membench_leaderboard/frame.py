"""Records as a pandas frame: one row for each finished trial."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from membench.records import Record

METRICS = ("accuracy", "kl", "excess_kl", "associations", "bits", "bits_per_parameter")
SIZES = ("parameters", "without_embeddings", "buffers", "identifiable")
RATIOS = ("ratio_to_bound", "ratio_to_oracle")
COLUMNS = (
    "id", "seed", "task", "task_version", "task_config", "protocol", "protocol_version", "protocol_config",
    "architecture", "config", *SIZES, *METRICS, *RATIOS, "lower_bound", "lower_bound_name", "zero_head", "chance",
    "converged",
)  # fmt: skip


def to_frame(records: Iterable[Record]) -> pd.DataFrame:
    """Complete records only; of the same trial recorded twice, the first counts."""
    complete = [record for record in records if record.complete]
    oracle = _oracle(complete)
    rows = [_row(record, oracle.get(_subject(record), math.nan)) for record in complete]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.drop_duplicates(["id", "seed"], ignore_index=True)


def _subject(record: Record) -> tuple[str, ...]:
    """What was measured, whichever way its weights were found."""
    parts = (record.architecture, record.task)
    return tuple(text for part in parts for text in (str(part["name"]), describe(part)))


def _oracle(records: Iterable[Record]) -> dict[tuple[str, ...], float]:
    """Associations that the convex readout holds, for each model and task that it was constructed for."""
    found: dict[tuple[str, ...], list[float]] = {}
    for record in records:
        if record.trace.get("construction") == "convex-readout":
            found.setdefault(_subject(record), []).append(_number(record.trace.get("certified")))
    return {subject: sum(counts) / len(counts) for subject, counts in found.items()}


def _row(record: Record, oracle: float) -> dict[str, Any]:
    bounds = {bound.get("name"): bound for bound in record.bounds if isinstance(bound, dict)}
    name, value = _best_lower_bound(bounds.values())
    return {
        "id": record.id,
        "seed": record.seed,
        "task": record.task["name"],
        "task_version": record.task["version"],
        "task_config": describe(record.task),
        "protocol": record.protocol["name"],
        "protocol_version": record.protocol["version"],
        "protocol_config": describe(record.protocol),
        "architecture": record.architecture["name"],
        "config": describe(record.architecture),
        **{key: _number(record.size.get(key)) for key in SIZES},
        **{key: _number(record.metrics.get(key)) for key in METRICS},
        "ratio_to_bound": _number(record.metrics.get("associations")) / _guaranteed(bounds.values()),
        "ratio_to_oracle": _number(record.metrics.get("associations")) / oracle,
        "lower_bound": value,
        "lower_bound_name": name,
        "zero_head": _number(bounds.get("zero-head", {}).get("value")),
        "chance": _number(bounds.get("chance", {}).get("value")),
        "converged": record.trace.get("converged"),
    }


def _best_lower_bound(bounds: Iterable[Mapping[str, Any]]) -> tuple[str, float]:
    """The largest accuracy that theory guarantees, and who guarantees it."""
    proven = [b for b in bounds if b.get("quantity") == "accuracy" and b.get("direction") == "lower"]
    applying = [bound for bound in proven if bound.get("status", "applies") == "applies"]
    values = [(_number(bound.get("value")), str(bound.get("name"))) for bound in applying]
    value, name = max((pair for pair in values if not math.isnan(pair[0])), default=(math.nan, ""))
    return name, value


def _guaranteed(bounds: Iterable[Mapping[str, Any]]) -> float:
    """The largest number of associations that theory guarantees; NaN when it guarantees none."""
    proven = [b for b in bounds if b.get("quantity") == "associations" and b.get("direction") == "lower"]
    values = [_number(b.get("value")) for b in proven if b.get("status", "applies") == "applies"]
    return max((value for value in values if value > 0), default=math.nan)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def describe(part: dict[str, Any]) -> str:
    """The short words for a config that its record carries, or all of the config."""
    label, config = part.get("label"), part["config"]
    if isinstance(label, str):
        return label
    return " ".join(f"{name}={value}" for name, value in config.items()) if isinstance(config, dict) else str(config)
