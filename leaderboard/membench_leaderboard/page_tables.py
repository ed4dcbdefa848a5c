"""The tables of the page as HTML: what a reader without scripts sees, and what the page's script sorts and filters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple
from urllib.parse import quote

from membench_leaderboard.table import DIGITS, area_interval, interval, interval_ends, number, place

Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column of numbers: where they are in a row, what they are called and mean, and how they look."""

    key: str
    header: str
    form: str
    first: str  # the direction that a reader wants first
    meaning: str


UP, DOWN = "ascending", "descending"
COLUMNS = (
    Column("parameters", "params", ",.0f", UP, "Numbers that training can change, counted by membench."),
    Column("without_embeddings", "w/o emb.", ",.0f", UP, "Parameters without the embeddings."),
    Column("accuracy", "accuracy", ".4f", DOWN,
           "Over all facts, weighted by their prior, with frozen weights: the mean over seeds, "
           "and below it the 95 % bootstrap interval of that mean."),
    Column("associations", "facts held", ",.0f", DOWN,
           "Facts that a model would have to know, and guess the rest, to be as accurate."),
    Column("bits_per_parameter", "bits/\u200bparam", ".2f", DOWN,
           "What the answers say beyond a uniform guess, in bits, divided by the parameters."),
    Column("load", "load", ".2f", DOWN,
           "T0 log2 N, the bits that the facts would take, divided by the parameters: no model holds more."),
    Column("lower_bound", "lower bound", ".3f", DOWN, "The largest accuracy that theory guarantees."),
    Column("ratio_to_bound", "x proven", ".1f", DOWN, "Facts held, as a multiple of the largest number proven."),
    Column("ratio_to_oracle", "x convex oracle", ".2f", DOWN,
           "Facts held, as a multiple of what the convex readout of the same model holds."),
    Column("zero_head", "zero-head", ".3f", DOWN, "Accuracy of the best model that sees only the last token."),
    Column("chance", "chance", ".3f", DOWN, "Accuracy of a uniform guess."),
    Column("bayes", "best possible", ".3f", DOWN, "Accuracy of the facts' own likeliest answers."),
    Column("kl", "KL", ".4f", UP, "Divergence of the model from the facts in nats, weighted by their prior."),
    Column("excess_kl", "KL over floor", ".4f", UP, "Divergence beyond the best known for logits of this rank."),
    Column("identifiable", "identifi\u00adable", ",.0f", UP,
           "Parameters less the directions that change no output, where they are known."),
    Column("seeds", "seeds", ",.0f", DOWN, "How many trials the mean is over."),
)  # fmt: skip
SCORES = (
    Column("area", "area", ".3f", DOWN,
           "Mean of the best accuracy (or divergence) within a budget, over the logarithm of the budget."),
    Column("peak_bits_per_parameter", "peak bits/\u200bparam", ".2f", DOWN, "The most bits per parameter at any load."),
    Column("load_at_99", "load at 99 %", ".2f", DOWN, "The largest load at which 99 % accuracy is reached."),
    *(one for one in COLUMNS if one.key in ("ratio_to_bound", "ratio_to_oracle", "excess_kl")),
)  # fmt: skip
SIZES = ("parameters", "without_embeddings")
ALWAYS = (*SIZES, "accuracy", "associations", "bits_per_parameter")
FIRST = {"accuracy": ("accuracy",), "kl": ("kl", "excess_kl")}


def rows_table(at: int, table: Row, names: Sequence[str]) -> str:
    """Every row of a board's table, in its order."""
    by, columns = table["sorted_by"], shown_columns(table)
    heads = [_head("rank", "#", UP)] if table["ranked"] else []
    heads.append(_head("architecture", "model", UP, kind=' class="name"'))
    heads += [_head(one.key, one.header, one.first, one.first if one.key == by else "") for one in columns]
    heads.append(_head("id", "id", UP))
    bodies = [_row(row, table, columns, names) for row in table["rows"]]
    return _grid(f"rows-{at}", "rows", f"Every row of {title(table)}", heads, bodies)


def scores_table(at: int, table: Row, names: Sequence[str]) -> str:
    """One row for each architecture, over all its sizes."""
    scores = table.get("scores") or []
    if not scores:
        return ""
    by, budgets = table["sorted_by"], list(scores[0]["budgets"])
    first = UP if by == "kl" else DOWN
    columns = [one._replace(first=first, form=DIGITS[by]) if one.key == "area" else one for one in shown_scores(table)]
    heads = [_head("rank", "#", UP)] if table["ranked"] else []
    heads.append(_head("architecture", "architecture", UP, kind=' class="name"'))
    heads += [_head(f"budget {budget}", f"at {int(budget):,}", first) for budget in budgets]
    heads += [_head(one.key, one.header, one.first, first if one.key == "area" else "") for one in columns]
    bodies = [_score(score, table, budgets, columns, names) for score in scores]
    best = "lowest divergence" if by == "kl" else "best accuracy"
    grid = _grid(f"scores-{at}", "scores", f"Scores of each architecture on {title(table)}", heads, bodies)
    note = f'<p class="note">{escape(table.get("score_note") or "")}</p>'
    return f"<h3>Architectures: {best} within a budget of parameters</h3>\n{grid}\n{note}\n<h3>All models</h3>"


def title(table: Row) -> str:
    protocol = f"protocol {table['protocol']} v{table['protocol_version']}"
    return escape(f"{table['task']} v{table['task_version']} ({table['task_config']}), {protocol}")


def shown_columns(table: Row) -> list[Column]:
    """Those that say something of a table; what it is sorted by comes first after the sizes."""
    by, rows = table["sorted_by"], table["rows"]
    found = [one for one in COLUMNS if one.key in (*ALWAYS, by) or any(known(row.get(one.key)) for row in rows)]
    if by == "accuracy":
        found = [one for one in found if one.key != "bayes"]  # it is 1 there
    if len({row["seeds"] for row in rows}) == 1:
        found = [one for one in found if one.key != "seeds"]  # the note says it for all of them
    return sorted(found, key=lambda one: (one.key not in SIZES, one.key not in FIRST[by]))


def shown_scores(table: Row) -> list[Column]:
    scores = table.get("scores") or []
    return [one for one in SCORES if any(known(score.get(one.key)) for score in scores)]


def _grid(name: str, kind: str, caption: str, heads: Sequence[str], bodies: Sequence[str]) -> str:
    """A table in a box of its own, which scrolls and can be reached with the keyboard."""
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{name}">'
        f'<table class="{kind}"><caption class="unseen" id="{name}">{caption}</caption>'
        f"<thead><tr>{''.join(heads)}</tr></thead>\n<tbody>\n" + "\n".join(bodies) + "\n</tbody></table></div>"
    )


def _head(key: str, text: str, first: str, sort: str = "", kind: str = "") -> str:
    state = f' aria-sort="{sort}"' if sort else ""
    return f'<th scope="col"{kind} data-key="{escape(key)}" data-first="{first}"{state}>{escape(text)}</th>'


def _row(row: Row, table: Row, columns: Sequence[Column], names: Sequence[str]) -> str:
    cells = [f"<td>{place(row)}</td>"] if table["ranked"] else []
    cells.append(
        f'<th scope="row" class="name">{_link(row["architecture"], names)}'
        f'<small>{escape(row["config"])}</small><span class="tags">{_tags(row)}</span></th>'
    )
    cells += [f"<td>{_cell(row, one, table['sorted_by'])}</td>" for one in columns]
    cells.append(f'<td class="id">{escape(row["id"])}<small>membench {escape(str(row.get("membench")))}</small></td>')
    return f'<tr id="{row_anchor(row)}">{"".join(cells)}</tr>'


def row_anchor(row: Row) -> str:
    return f"row-{quote(row['id'], safe='')}{'-published' if row.get('published') else ''}"


def _link(name: str, names: Sequence[str]) -> str:
    return f'<a href="#architecture-{names.index(name)}">{escape(name)}</a>'


def _tags(row: Row) -> str:
    """What a reader must know of a row beside its numbers, in words."""
    tags = ["<b>* Pareto front</b>"] if row.get("pareto") else []
    tags += ["constructed"] if row.get("origin") == "constructed" else []
    tags += [escape(str(row["verification"]))] if row.get("verification") else []
    tags += ["published"] if row.get("published") else []
    tags += ["not converged"] if row.get("converged") is False else []
    return ", ".join(tags)


def _cell(row: Row, column: Column, by: str) -> str:
    if column.key in ("bits_per_parameter", "load"):
        return _both(number(row.get(column.key), column.form), number(_bare(row, column.key), column.form))
    text = number(row.get(column.key), column.form)
    below = column.key == "accuracy" or column.key == by
    return f"{text}<small>{interval(row, column.key)}</small>" if below else text


def _both(every: str, bare: str) -> str:
    """The cell for each way to count parameters; the page shows one of them."""
    return f'<span class="all">{every}</span><span class="bare">{bare}</span>'


def _bare(row: Row, key: str) -> float | None:
    """A number per parameter, per parameter that is no embedding."""
    value, every, bare = row.get(key), row.get("parameters"), row.get("without_embeddings")
    if value is None or every is None or not bare:
        return None
    return float(value * every / bare)


def known(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _score(score: Row, table: Row, budgets: Sequence[str], columns: Sequence[Column], names: Sequence[str]) -> str:
    by, tag = table["sorted_by"], '<span class="tags">published</span>' if score.get("published") else ""
    cells = [f"<td>{place(score)}</td>"] if table["ranked"] else []
    cells.append(f'<th scope="row" class="name">{_link(score["architecture"], names)}{tag}</th>')
    for budget in budgets:
        found = score["budgets"][budget]
        cells.append(f"<td>{_both(_best(found['all'], by), _best(found['without_embeddings'], by))}</td>")
    for one in columns:
        below = f"<small>{area_interval(score, by)}</small>" if one.key == "area" else ""
        cells.append(f"<td>{number(score.get(one.key), one.form)}{below}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _best(row: Row | None, by: str) -> str:
    return f"{number(row[by], DIGITS[by])}<small>{interval_ends(row, by)}</small>" if row else "-"
