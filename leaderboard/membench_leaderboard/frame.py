"""Records as a pandas frame: one row for each finished trial."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from membench.interface.origin import BUILT_IN
from membench.measure.metrics import METRICS
from membench.measure.size import COUNTS
from membench.records.record import Record
from membench.records.store import Entry

SIZES = (*(count.field for count in COUNTS.values()), "buffers", "identifiable", "storage_bits", "learned_bits",
         "active", "state", "flops", "code_bytes")  # fmt: skip
REFERENCES = {"zero_head": "zero-head", "bayes": "bayes"}  # column: name of the bound that is drawn for comparison


def entries(records: Iterable[Record | Entry]) -> list[Entry]:
    return [one if isinstance(one, Entry) else Entry(one) for one in records]


def to_frame(records: Iterable[Record | Entry]) -> pd.DataFrame:
    """Complete records only; of the same trial recorded twice, the first counts."""
    complete = [entry for entry in entries(records) if entry.record.complete]
    oracle = _oracle(entry.record for entry in complete)
    rows = [_row(entry, oracle.get(_subject(entry.record), math.nan) if oracle else math.nan) for entry in complete]
    columns = {name: [row[name] for row in rows] for name in _row(_BLANK, math.nan)}
    return pd.DataFrame(columns).drop_duplicates(["id", "seed", "published"], ignore_index=True)


_NOTHING: dict[str, Any] = {"name": "", "version": 0, "config": {}}
_BLANK = Entry(Record(id="", seed=0, status="", architecture=_NOTHING, task=_NOTHING, protocol=_NOTHING))


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


def _power(base: float, exponent: float) -> float:
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf


def _row(entry: Entry, oracle: float) -> dict[str, Any]:
    record = entry.record
    associations = _number(record.metrics.get("associations"))
    value, name = record.proven("accuracy")
    guaranteed = record.proven("associations")[0]
    answers = _number(record.task.get("answers"))
    return {
        "id": record.id,
        "seed": record.seed,
        "task": str(record.task["name"]),
        "task_version": record.task["version"],
        "task_config": describe(record.task),
        "kind": record.task.get("kind"),
        "contexts": _number(record.task.get("contexts")),
        "all_contexts": _power(_number(record.task.get("vocab")), _number(record.task.get("length"))),
        "protocol": str(record.protocol["name"]),
        "protocol_version": record.protocol["version"],
        "protocol_config": describe(record.protocol),
        "architecture": str(record.architecture["name"]),
        "config": describe(record.architecture),
        "published": entry.published,
        **{key: _number(record.size.get(key)) for key in SIZES},
        **{key: _number(record.metrics.get(key)) for key in METRICS},
        "bits_per_stored_bit": record.bits_per_stored_bit,
        "cpu_seconds": record.cpu_seconds,
        "ratio_to_bound": associations / guaranteed if guaranteed > 0 else math.nan,
        "ratio_to_oracle": associations / oracle if oracle else math.nan,
        "load": _load(record, answers),
        "lower_bound": value,
        "lower_bound_name": name,
        "chance": 1 / answers if answers > 0 else math.nan,
        **{column: record.reference(bound) for column, bound in REFERENCES.items()},
        "shapes": _shapes(record),
        "converged": record.trace.get("converged"),
        "foreign_kernel": _has_foreign_kernel(record),
        "verified": entry.verified,
        "verifier": entry.verifier,
        "not_retrained": entry.retrained is False,
        "membench": str(record.environment.get("membench") or "unknown"),
    }


def _has_foreign_kernel(record: Record) -> bool:
    """Whether a plugin's own kernel found the weights: it is given the answers, and may return any."""
    paths, who = record.trace.get("paths"), record.architecture.get("distribution")
    return isinstance(paths, list) and "kernel" in paths and who != BUILT_IN


def _load(record: Record, answers: float) -> float:
    """T0 log2 A / P: the bits that the facts would take, for each parameter."""
    contexts, parameters = _number(record.task.get("contexts")), _number(record.size.get("parameters"))
    return contexts * math.log2(answers) / parameters if answers > 0 and parameters > 0 else math.nan


def _shapes(record: Record) -> float:
    tuned = record.run.get("tuned")
    return _number(tuned.get("shapes")) if isinstance(tuned, dict) else math.nan


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def describe(part: dict[str, Any]) -> str:
    """The short words for a config that its record carries, or all of the config."""
    label, config = part.get("label"), part["config"]
    if isinstance(label, str):
        return label
    return " ".join(f"{name}={value}" for name, value in config.items()) if isinstance(config, dict) else str(config)
