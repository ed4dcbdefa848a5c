"""What Python shows of results: a table as text for a terminal, and as HTML for a notebook."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from membench.analysis.trial_frame import value_text


def as_text(title: str, table: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """A title, the table as it is formatted, and a line for each note."""
    rows = [] if table.empty else [table.to_string(index=False)]
    return "\n".join([title, *rows, *notes])


def as_html(title: str, table: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """The same for a notebook. Names of records and plugins are only ever text in it."""
    rows = "" if table.empty else table.to_html(index=False, border=0)
    lines = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    return f"<p><b>{html.escape(title)}</b></p>{rows}{lines}"


def cell(value: Any, form: str = "") -> str:
    """A value in a few letters; a dash for one that is missing."""
    if pd.isna(value):
        return "-"
    return form.format(value) if form else value_text(value)


def with_interval(mean: float, low: float, high: float) -> str:
    return cell(mean, "{:.4f}") + ("" if math.isnan(low) else f" ({low:.4f} to {high:.4f})")
