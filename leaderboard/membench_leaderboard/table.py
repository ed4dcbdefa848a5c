"""Tables of rows: for a terminal, for a document, for a machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from rich.markup import escape
from rich.table import Table

from membench.engine.protocols import PROTOCOLS
from membench_leaderboard.score import TABLE, ranked


def ranked_tables(rows: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The rows of each table, ranked, with what they have in common."""
    for key, group in rows.groupby(TABLE, sort=True):
        yield dict(zip(TABLE, key, strict=True)), ranked(group)


def is_ranked(protocol: str) -> bool:
    return protocol not in PROTOCOLS or PROTOCOLS[protocol].ranked


def boards(rows: pd.DataFrame, *, rank: bool = True, width: int = 80) -> Iterator[Table]:
    """A rich table for each task config and protocol; it fits 80 columns and shows more where there are more."""
    for common, group in ranked_tables(rows):
        yield _board(common, group, rank and is_ranked(common["protocol"]), WIDE if width >= 120 else {})


# What a wide terminal shows beside the rest: header, column and format.
WIDE = {
    "identifi-\nable": ("identifiable", ",.0f"),
    "x proven": ("ratio_to_bound", ".1f"),
    "x convex\noracle": ("ratio_to_oracle", ".2f"),
    "KL": ("kl", ".4f"),
    "KL over\nfloor": ("excess_kl", ".4f"),
}


def _board(common: dict[str, Any], group: pd.DataFrame, rank: bool, more: Mapping[str, tuple[str, str]]) -> Table:
    table = Table(title=_title(common), caption=_caption(common, group, rank), box=None, pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    table.header_style, table.padding = "bold", (0, 2, 0, 0)
    if rank:
        table.add_column("#", justify="right", no_wrap=True)
    table.add_column("model", overflow="fold", ratio=1, min_width=15)
    for header in ("params\nw/o emb.", "accuracy\ninterval", "facts\nheld", "bits/\nparam", "lower\nbound",
                   "zero-\nhead", "chance", *more):  # fmt: skip
        table.add_column(header, justify="right", no_wrap=True)
    for record in group.to_dict("records"):
        row = {str(name): value for name, value in record.items()}
        table.add_row(*_cells(row, rank), *(_decimal(row[name], form) for name, form in more.values()))
    return table


def _cells(row: dict[str, Any], rank: bool) -> list[str]:
    cells = [f"{row['rank']}{'=' if row['tied'] else ''}"] if rank else []
    return [
        *cells,
        f"{escape(row['architecture'])}\n[dim]{escape(row['config'])}[/dim]",
        f"{row['parameters']:,.0f}\n[dim]{row['without_embeddings']:,.0f}[/dim]",
        f"{_decimal(row['accuracy'])}\n[dim]{_interval(row)}[/dim]",
        _decimal(row["associations"], ",.0f"),
        _decimal(row["bits_per_parameter"], ".2f"),
        _decimal(row["lower_bound"], ".3f"),
        _decimal(row["zero_head"], ".3f"),
        _decimal(row["chance"], ".3f"),
    ]


def _decimal(value: float, form: str = ".4f") -> str:
    return "-" if value is None or math.isnan(value) else format(value, form)


def _interval(row: dict[str, Any]) -> str:
    if math.isnan(row["low"]):
        return f"{row['seeds']} seed"
    return f"{row['low']:.3f}-{row['high']:.3f}"


def _title(common: dict[str, Any]) -> str:
    return escape(f"{common['task']} v{common['task_version']}: {common['task_config']}  |  {_protocol(common)}")


def _protocol(common: dict[str, Any]) -> str:
    options = f" ({common['protocol_config']})" if common["protocol_config"] else ""
    return f"protocol {common['protocol']} v{common['protocol_version']}{options}"


def _caption(common: dict[str, Any], group: pd.DataFrame, rank: bool) -> str:
    fewest, most = group["seeds"].min(), group["seeds"].max()
    seeds = f"{most}" if fewest == most else f"{fewest} to {most}"
    parts = [f"mean and 95 % interval over {seeds} seed{'s' if most > 1 else ''}"]
    if rank:
        parts.append("sorted by accuracy; '=' marks overlapping intervals")
    if not is_ranked(common["protocol"]):
        parts.append("not ranked")
    if common["protocol"] == "construct":
        parts.append("constructed, not trained")
    stopped = int(group["converged"].eq(False).sum()) if is_ranked(common["protocol"]) else 0
    if stopped:
        parts.append(f"{stopped} row(s) could still improve with more steps")
    return "; ".join(parts) + "\n"


def rows_as_json(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Plain data, with ranks; NaN is null."""
    found: list[dict[str, Any]] = []
    for common, group in ranked_tables(rows):
        for row in group.to_dict("records"):
            if not is_ranked(common["protocol"]):
                row.update(rank=None, tied=None)
            found.append({str(name): _plain(value) for name, value in row.items()})
    return found


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def as_text(rows: pd.DataFrame, form: str) -> str:
    """Markdown (a table and heading for each task config) or CSV (one table for all)."""
    if form == "csv":
        text: str = pd.DataFrame(rows_as_json(rows)).to_csv(index=False)
        return text.rstrip("\n")
    return "\n\n".join(
        f"### {_plain_title(common)}\n\n{_markdown(common, group)}" for common, group in ranked_tables(rows)
    )


def _plain_title(common: dict[str, Any]) -> str:
    return f"{common['task']} v{common['task_version']} ({common['task_config']}), {_protocol(common)}"


def _markdown(common: dict[str, Any], group: pd.DataFrame) -> str:
    from tabulate import tabulate

    rank = is_ranked(common["protocol"])
    rows = [
        {
            "#": f"{row['rank']}{'=' if row['tied'] else ''}" if rank else "-",
            "model": row["architecture"],
            "config": row["config"],
            "parameters": f"{row['parameters']:,.0f}",
            "without embeddings": f"{row['without_embeddings']:,.0f}",
            "accuracy": f"{row['accuracy']:.4f}",
            "95 % interval": _interval({str(k): v for k, v in row.items()}),
            "facts held": _decimal(row["associations"], ",.0f"),
            "bits/param": _decimal(row["bits_per_parameter"], ".2f"),
            "lower bound": _decimal(row["lower_bound"]),
            "zero-head": _decimal(row["zero_head"]),
            "chance": _decimal(row["chance"]),
        }
        for row in group.to_dict("records")
    ]
    return tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True)
