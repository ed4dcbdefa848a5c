"""Records as a pandas frame: one row for each finished trial."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from membench.records.record import Record

METRICS = ("accuracy", "kl", "excess_kl", "associations", "bits", "bits_per_parameter")
SIZES = ("parameters", "without_embeddings", "buffers", "identifiable")
RATIOS = ("ratio_to_bound", "ratio_to_oracle")
COLUMNS = (
    "id", "seed", "task", "task_version", "task_config", "protocol", "protocol_version", "protocol_config",
    "architecture", "config", "published", *SIZES, *METRICS, *RATIOS, "load", "lower_bound", "lower_bound_name",
    "zero_head", "chance", "bayes", "converged", "verified", "membench",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A record and what is known of it beside what it says."""

    record: Record
    source: str = ""  # the file that it was read from
    published: bool = False  # it came with the package
    verified: bool = False  # its weights were checked


def entries(records: Iterable[Record | Entry]) -> list[Entry]:
    return [one if isinstance(one, Entry) else Entry(one) for one in records]


def to_frame(records: Iterable[Record | Entry]) -> pd.DataFrame:
    """Complete records only; of the same trial recorded twice, the first counts."""
    complete = [entry for entry in entries(records) if entry.record.complete]
    oracle = _oracle(entry.record for entry in complete)
    rows = [_row(entry, oracle.get(_subject(entry.record), math.nan) if oracle else math.nan) for entry in complete]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    return frame.drop_duplicates(["id", "seed", "published"], ignore_index=True)


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


def _row(entry: Entry, oracle: float) -> tuple[Any, ...]:
    """The columns, in their order: tuples, because there may be many thousands of them."""
    record = entry.record
    bounds = {bound.get("name"): bound for bound in record.bounds if isinstance(bound, dict)}
    associations = _number(record.metrics.get("associations"))
    value, name = record.proven("accuracy")
    guaranteed = record.proven("associations")[0]
    return (
        record.id, record.seed,
        str(record.task["name"]), record.task["version"], describe(record.task),
        str(record.protocol["name"]), record.protocol["version"], describe(record.protocol),
        str(record.architecture["name"]), describe(record.architecture), entry.published,
        *(_number(record.size.get(key)) for key in SIZES),
        *(_number(record.metrics.get(key)) for key in METRICS),
        associations / guaranteed if guaranteed > 0 else math.nan, associations / oracle if oracle else math.nan,
        _load(record, bounds), value, name,
        *(_number(bounds.get(key, {}).get("value")) for key in ("zero-head", "chance", "bayes")),
        record.trace.get("converged"), entry.verified, str(record.environment.get("membench") or "unknown"),
    )  # fmt: skip


def _load(record: Record, bounds: Mapping[Any, Mapping[str, Any]]) -> float:
    """T0 log2 N / P: the bits that the facts would take, for each parameter."""
    config = record.task["config"] if isinstance(record.task["config"], dict) else {}
    facts = _number(bounds.get("support", {}).get("value", config.get("T0")))
    vocabulary = 1 / (_number(bounds.get("chance", {}).get("value")) or math.nan)
    parameters = _number(record.size.get("parameters"))
    return facts * math.log2(vocabulary) / parameters if vocabulary > 0 and parameters > 0 else math.nan


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def describe(part: dict[str, Any]) -> str:
    """The short words for a config that its record carries, or all of the config."""
    label, config = part.get("label"), part["config"]
    if isinstance(label, str):
        return label
    return " ".join(f"{name}={value}" for name, value in config.items()) if isinstance(config, dict) else str(config)
