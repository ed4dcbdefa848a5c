"""Records as a frame of trials in which every option, size and metric is a column, to be plotted or fitted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from membench.errors import UsageError, unknown
from membench.records.record import Record

PARTS = {"model": "architecture", "task": "task", "protocol": "protocol"}  # word on the command line: field of a record
FIXED = ("id", "seed", "model", "task", "task_version", "protocol", "protocol_version")
QUANTITIES = ("accuracy", "associations")  # of which theory guarantees some


def trial_frame(records: Iterable[Record], *, failed: bool = False) -> pd.DataFrame:
    """One row for each complete record; with `failed`, the others too, without numbers and marked in `complete`.

    The options of a model, task and protocol are columns such as `model.d`, `task.N` and `protocol.steps`, and
    also `d`, `N` and `steps`, as long as only one of the three has an option of that name.
    """
    rows = [{**_row(record), "complete": record.complete} for record in records if failed or record.complete]
    names: dict[str, set[str]] = {}
    for name in sorted({column for row in rows for column in row if "." in column}):
        names.setdefault(name.partition(".")[2], set()).add(name)
    short = {option: full for option, (full, *others) in names.items() if not others and option not in FIXED}
    for row in rows:
        row.update({option: row[full] for option, full in short.items() if full in row and option not in row})
    if not rows:
        return pd.DataFrame()
    frame = pd.DataFrame(rows).sort_values("complete", ascending=False, kind="stable")
    frame = frame.drop_duplicates(["id", "seed"]).sort_index(ignore_index=True)
    return frame if failed else frame.drop(columns="complete")


def option_columns(frame: pd.DataFrame) -> dict[str, str]:
    """The columns of options, each once, by its short name where there is one; and of what they are options."""
    found = {}
    for name in map(str, frame.columns):
        part, dot, option = name.partition(".")
        if dot and part in PARTS:
            found[option if option in frame else name] = part
    return found


def _row(record: Record) -> dict[str, Any]:
    options = {
        f"{word}.{name}": value
        for word, part in PARTS.items()
        for name, value in _config(getattr(record, part)).items()
        if isinstance(value, (int, float, str, bool))
    }
    return {
        "id": record.id,
        "seed": record.seed,
        "model": str(record.architecture["name"]),
        "task": str(record.task["name"]),
        "task_version": record.task["version"],
        "protocol": str(record.protocol["name"]),
        "protocol_version": record.protocol["version"],
        **options,
        **{name: float(value) for name, value in record.size.items() if isinstance(value, (int, float))},
        **{name: _number(value) for name, value in record.metrics.items()},
        "bits_per_stored_bit": record.bits_per_stored_bit,
        "cpu_seconds": record.cpu_seconds,
        "error": 1 - _number(record.metrics.get("accuracy")),
        **{f"proven_{quantity}": record.proven(quantity)[0] for quantity in QUANTITIES},
        "zero_head": record.reference("zero-head"),
        "chance": record.reference("chance"),
    }


def _config(part: Mapping[str, Any]) -> Mapping[str, Any]:
    config = part.get("config")
    return config if isinstance(config, dict) else {}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


def require_columns(frame: pd.DataFrame, names: Iterable[str], *, numbers: bool = False) -> None:
    """UsageError for a name that is no column, or (with `numbers`) one whose values are not numbers."""
    for name in names:
        if name not in frame:
            short = [column for column in frame if "." not in str(column)]
            raise unknown("column", name, map(str, frame.columns), f"there are: {', '.join(map(str, short))}")
        if numbers and not pd.api.types.is_numeric_dtype(frame[name]):
            raise UsageError(f"column '{name}' holds text such as '{frame[name].iloc[0]}'; choose a column of numbers")


def keep(frame: pd.DataFrame, conditions: Mapping[str, str]) -> pd.DataFrame:
    """The trials with these values; a list such as 7,10,13 keeps each of them."""
    require_columns(frame, conditions)
    for name, text in conditions.items():
        wanted = {one.strip() for one in text.split(",")}
        kept = frame[[value_text(value) in wanted for value in frame[name]]]
        if kept.empty:
            there = ", ".join(
                dict.fromkeys(value_text(value) for value in frame[name].dropna().sort_values().head(500))
            )
            raise UsageError(f"no record has {name}={text}; there are: {there}")
        frame = kept
    return frame.reset_index(drop=True)


def value_text(value: Any) -> str:
    """A value as it would be typed."""
    if isinstance(value, (bool, np.bool_)):
        return str(bool(value)).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def require_like(frame: pd.DataFrame, x: str, by: Sequence[str]) -> None:
    """UsageError when points of one curve differ in an option that is neither x nor what curves are told apart by."""
    options = [str(name) for name in frame if str(name).partition(".")[0] in PARTS and "." in str(name)]
    given = {x, *by}
    follows = {name for name in options if name.partition(".")[2] in given or name in given}
    for key, cell in frame.groupby([*by, x], sort=False, dropna=False):
        for name in [*FIXED[2:], *(name for name in options if name not in follows)]:
            values = sorted({value_text(value) for value in cell[name]})
            if len(values) > 1:
                where = ", ".join(f"{column}={value_text(value)}" for column, value in zip([*by, x], key, strict=True))
                shown = f"{', '.join(values[:5])}"
                raise UsageError(
                    f"records with {where} differ in {name.partition('.')[2] or name} ({shown}); choose one with "
                    f"--where {name}={values[0]}, or separate them with --by {','.join([*by, name])}"
                )
