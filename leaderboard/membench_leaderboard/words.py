"""What a reader of the board is told in words: titles, notes, and what the marks mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from membench.measure.size import COUNTS
from membench_leaderboard.budgets import AREA_FROM, AREA_TO

if TYPE_CHECKING:
    from membench_leaderboard.rows import Table

Row = Mapping[str, Any]
METRIC = {"accuracy": "accuracy", "kl": "KL"}  # in headers and sentences
PARETO = "* Pareto front"
MARKS = {
    PARETO: "Nothing that is as small is better, and nothing that is as good is smaller.",
    "verified": "The weights were checked against the record; nobody did that for self-reported rows. Who checked rows "
    "that are not published is said where it is signed.",
    "not converged": "Training used up its steps while it still gained; with more, the row could improve.",
}


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def seeds(fewest: int, most: int | None = None) -> str:
    if most is None or fewest == most:
        return counted(fewest, "seed")
    return f"{fewest} to {most} seeds"


def title(common: Row) -> str:
    """The name of a table, with all that tells it from others."""
    return f"{common['task']} v{common['task_version']} ({common['task_config']}), {protocol(common)}"


def short_title(common: Row) -> str:
    return f"{common['task']} ({common['task_config']}), {common['protocol']}"


def protocol(common: Row) -> str:
    options = f" ({common['protocol_config']})" if common["protocol_config"] else ""
    return f"protocol {common['protocol']} v{common['protocol_version']}{options}"


def note(table: Table, rank: bool = True) -> str:
    """What a reader has to know about the models of a table, and why they are in this order."""
    parts = [f"mean and 95 % interval over {_seeds(table)}"]
    if rank and table.ranked:
        parts += [_order(table), "'=' marks overlapping intervals", "* nothing as small is better"]
    return "; ".join([*parts, *_caveats(table)])


def score_note(table: Table, count: str = "all") -> str:
    """The same for the scores of its architectures."""
    parts = [
        f"best model with at most that many {COUNTS[count].words}, {_seeds(table)}",
        f"area: mean of the best {METRIC[table.by]} with at most p parameters, "
        f"over log p from {AREA_FROM:,} to {AREA_TO:,}",
    ]
    if table.ranked:
        lower = ", lower is better: the facts are distributions" if table.by == "kl" else ""
        parts += [f"sorted by area{lower}", "'=' marks overlapping 95 % intervals"]
    return "; ".join([*parts, *_caveats(table)])


def _seeds(table: Table) -> str:
    return seeds(int(table.frame["seeds"].min()), int(table.frame["seeds"].max()))


def _order(table: Table) -> str:
    if table.by == "kl":
        return "sorted by KL, lower is better, because the facts are distributions and have no accuracy of 1 to reach"
    return "sorted by accuracy"


def _caveats(table: Table) -> list[str]:
    stopped = int(table.frame["converged"].eq(False).sum()) if table.ranked else 0
    return [
        *([] if table.ranked else ["not ranked"]),
        *(["constructed, not trained"] if table.frame["origin"].iloc[0] == "constructed" else []),
        *([f"{counted(stopped, 'model')} could still improve with more steps"] if stopped else []),
    ]


def whose(row: Row) -> str:
    return "published" if row["published"] else "yours"


def provenance(row: Row) -> tuple[str, ...]:
    """Where the numbers of a row are from."""
    return whose(row), row["origin"], row["verification"], f"membench {row['membench']}"


def shared_provenance(rows: Sequence[Row]) -> tuple[str, ...]:
    """What can be said of the provenance of all rows at once."""
    shared = set.intersection(*(set(provenance(row)) for row in rows))
    return tuple(word for word in provenance(rows[0]) if word in shared)


def tags(row: Row) -> list[str]:
    """What a reader of the page must know of a row beside its numbers; `row` is plain data, of a model or a score."""
    if "config" not in row:
        return ["published"] if row["published"] else []
    return [
        *([PARETO] if row["pareto"] else []),
        *(["constructed"] if row["origin"] == "constructed" else []),
        row["verification"],
        *(["published"] if row["published"] else []),
        *(["not converged"] if row["converged"] is False else []),
    ]
