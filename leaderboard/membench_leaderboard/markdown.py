"""The board as text for documents (Markdown) and for other programs (CSV)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from membench_leaderboard.rows import sorted_by
from membench_leaderboard.scores import BUDGETS, standings
from membench_leaderboard.table import (
    DIGITS,
    area_interval,
    budget_name,
    interval,
    interval_ends,
    is_ranked,
    note,
    number,
    origin,
    place,
    protocol_words,
    ranked_tables,
    rows_as_json,
    score_note,
    verification,
)

Row = Mapping[str, Any]


def as_csv(rows: pd.DataFrame) -> str:
    """The models of all tables, with ranks."""
    text: str = pd.DataFrame(rows_as_json(rows)).to_csv(index=False)
    return text.rstrip("\n")


def rows_as_markdown(rows: pd.DataFrame) -> str:
    """A heading, the models and a note for each table."""
    return "\n\n".join(
        f"### {heading(common)}\n\n{models_table(common, group)}\n\n{safe(note(common, group))}"
        for common, group in ranked_tables(rows)
    )


def scores_as_markdown(rows: pd.DataFrame, count: str = "all") -> str:
    """A heading, the scores of the architectures and a note for each table."""
    return "\n\n".join(
        f"### {heading(common)}\n\n{scores_table(common, group, count)}\n\n{safe(score_note(common, group, count))}"
        for common, group in ranked_tables(rows)
    )


def heading(common: Row) -> str:
    return safe(f"{common['task']} v{common['task_version']} ({common['task_config']}), {protocol_words(common)}")


def safe(text: object) -> str:
    """Text of somebody else's, which must not end a cell or begin a tag."""
    plain = " ".join(str(text).split())
    for character in ("\\", "|", "*", "`", "[", "]"):
        plain = plain.replace(character, "\\" + character)
    return plain.replace("&", "&amp;").replace("<", "&lt;")


def models_table(common: Row, group: pd.DataFrame) -> str:
    by = sorted_by(group)
    return _table([
        {
            "#": place(row) if is_ranked(common["protocol"]) else "-",
            "model": safe(row["architecture"]) + (" \\*" if row["pareto"] else ""),
            "config": safe(row["config"]),
            "parameters": number(row["parameters"], ",.0f"),
            "without embeddings": number(row["without_embeddings"], ",.0f"),
            **_result(row, by),
            "bits/param": number(row["bits_per_parameter"], ".2f"),
            "lower bound": number(row["lower_bound"]),
            "zero-head": number(row["zero_head"]),
            "chance": number(row["chance"]),
            **_provenance(common, row),
            "id": row["id"],
        }
        for row in _rows(group)
    ])  # fmt: skip


def _result(row: Row, by: str) -> dict[str, str]:
    if by == "kl":
        return {"KL": number(row["kl"]), "95 % interval": interval(row, "kl"),
                "KL over floor": number(row["excess_kl"]), "accuracy": number(row["accuracy"])}  # fmt: skip
    return {"accuracy": number(row["accuracy"]), "95 % interval": interval(row),
            "facts held": number(row["associations"], ",.0f")}  # fmt: skip


def scores_table(common: Row, group: pd.DataFrame, count: str = "all") -> str:
    by = sorted_by(group)
    return _table([
        {
            "#": place(row) if is_ranked(common["protocol"]) else "-",
            "architecture": safe(row["architecture"]),
            **{f"{'accuracy' if by == 'accuracy' else 'KL'} at {budget_name(budget)}":
               _at(row["budgets"][str(budget)][count], by) for budget in BUDGETS},
            "area": number(row["area"], DIGITS[by]),
            "95 % interval": area_interval(row, by) or "-",
            "peak bits/param": number(row["peak_bits_per_parameter"], ".2f"),
            **_last_scores(row, by),
            **_provenance(common, row),
        }
        for row in standings(group)
    ])  # fmt: skip


def _last_scores(row: Row, by: str) -> dict[str, str]:
    if by == "kl":
        return {"KL over floor": number(row["excess_kl"])}
    return {
        "load at 99 %": number(row["load_at_99"], ".2f"),
        "x proven": number(row["ratio_to_bound"], ".1f"),
        "x convex oracle": number(row["ratio_to_oracle"], ".2f"),
    }


def _at(found: Row | None, by: str) -> str:
    if found is None:
        return "-"
    ends = interval_ends(found, by)
    return number(found[by], DIGITS[by]) + (f" ({ends})" if ends else "")


def _provenance(common: Row, row: Row) -> dict[str, str]:
    return {
        "weights": origin(common["protocol"]),
        "numbers": verification(row["verified"]),
        "membench": safe(row["membench"]),
    }


def _rows(group: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in group.to_dict("records")]


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    from tabulate import tabulate

    return tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True)
