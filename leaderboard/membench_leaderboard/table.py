"""Tables for a terminal, and what they have in common with documents: order, notes and words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from rich.markup import escape
from rich.table import Table

from membench.engine.protocols.protocol import PROTOCOLS
from membench_leaderboard.rows import BY_SEED, INTERVALS, TABLE, ranked, sorted_by
from membench_leaderboard.scores import AREA_FROM, AREA_TO, BUDGETS, standings

Row = Mapping[str, Any]
WIDE = 120  # columns of a terminal from which on more is shown
BAR = 8  # cells of a bar
DIGITS = {"accuracy": ".3f", "kl": ".4f"}  # of scores and intervals


@dataclass(frozen=True)
class Column:
    header: str
    cell: Callable[[Row], str]  # may hold rich markup: names are escaped
    justify: Literal["left", "right"] = "right"


def ranked_tables(rows: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The rows of each table, ranked, with what they have in common."""
    for key, group in rows.groupby(TABLE, sort=True):
        yield dict(zip(TABLE, key, strict=True)), ranked(group)


def is_ranked(protocol: str) -> bool:
    return protocol not in PROTOCOLS or PROTOCOLS[protocol].ranked


def origin(protocol: str) -> str:
    return "constructed" if protocol == "construct" else "trained"


def verification(verified: bool) -> str:
    return "verified" if verified else "self-reported"


def boards(rows: pd.DataFrame, *, rank: bool = True, width: int = 80) -> Iterator[Table]:
    """A rich table of models for each task config and protocol; it fits 80 columns and shows more where there are more.

    Without ranks it is about what was just run, and says nothing of where rows came from.
    """
    for common, group in ranked_tables(rows):
        ranks = rank and is_ranked(common["protocol"])
        by, wide, found = sorted_by(group), width >= WIDE, _rows(group)
        shared, words = _told_once(common["protocol"], found) if rank and not wide else ("", _nothing)
        columns = [_model(ranks, words), _size(), *_results(by)]
        columns += [*_baselines(by), *(_more(by) if wide else ())]
        columns += _provenance(common["protocol"]) if rank and wide else []
        yield _filled(title(common), note(common, group, rank) + shared, _ranking() if ranks else [], columns, found)


def score_boards(rows: pd.DataFrame, *, count: str = "all", width: int = 80, bars: bool = False) -> Iterator[Table]:
    """A rich table of architectures for each task config and protocol."""
    for common, group in ranked_tables(rows):
        by, wide, found = sorted_by(group), width >= WIDE, standings(group)
        shared, words = ("", _nothing) if wide else _told_once(common["protocol"], found)
        columns = [_architecture(words), *_budgets(by, count, wide), _area(by)]
        columns += [_bar()] if bars and by == "accuracy" else []
        columns += [Column("peak\nbits/\nparam", _decimal("peak_bits_per_parameter", ".2f"))]
        if wide:
            columns += [*_ratios(), *_provenance(common["protocol"])]
        ranking = _ranking() if is_ranked(common["protocol"]) else []
        yield _filled(title(common), score_note(common, group, count) + shared, ranking, columns, found)


def _rows(group: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in group.to_dict("records")]


def _filled(
    title: str, caption: str, ranking: Sequence[Column], columns: Sequence[Column], rows: Sequence[Row]
) -> Table:
    """A table in our look; the first column after the rank takes what width is left."""
    table = Table(title=escape(title), caption=escape(caption) + "\n", box=None, pad_edge=False)
    table.title_justify = table.caption_justify = "left"
    table.header_style, table.padding = "bold", (0, 2, 0, 0)
    for column in ranking:
        table.add_column(column.header, justify="right", no_wrap=True)
    table.add_column(columns[0].header, overflow="fold", ratio=1, min_width=15)
    for column in columns[1:]:
        table.add_column(column.header, justify=column.justify, no_wrap=True)
    for row in rows:
        style = "green" if ranking and row["rank"] == 1 else None
        table.add_row(*(column.cell(row) for column in (*ranking, *columns)), style=style)
    return table


def number(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None or math.isnan(value) else format(value, form)


def _decimal(name: str, form: str = ".4f") -> Callable[[Row], str]:
    return lambda row: number(row[name], form)


def place(row: Row) -> str:
    return f"{row['rank']}{'=' if row['tied'] else ''}"


def _ranking() -> list[Column]:
    return [Column("#", place)]


def _model(stars: bool, words: Callable[[Row], str]) -> Column:
    def cell(row: Row) -> str:
        star = " *" if stars and row["pareto"] else ""
        lines = (f"{escape(row['architecture'])}{star}", *(_dim(text) for text in (row["config"], words(row)) if text))
        return "\n".join(lines)

    return Column("model", cell)


def _architecture(words: Callable[[Row], str]) -> Column:
    def cell(row: Row) -> str:
        name, more = escape(row["architecture"]), words(row)
        return f"{name}\n{_dim(more)}" if more else name

    return Column("architecture", cell)


def _dim(text: str) -> str:
    return f"[dim]{escape(text)}[/dim]"


def _origins(protocol: str, row: Row) -> tuple[str, ...]:
    where = "published" if row["published"] else "yours"
    return where, origin(protocol), verification(row["verified"]), f"membench {row['membench']}"


def _told_once(protocol: str, rows: Sequence[Row]) -> tuple[str, Callable[[Row], str]]:
    """For a narrow table: a note on where all its rows are from, and for each row the words that not all share."""
    shared = set.intersection(*(set(_origins(protocol, row)) for row in rows))
    common = ", ".join(word for word in _origins(protocol, rows[0]) if word in shared)
    note = f"; all rows: {common}" if common else ""
    return note, lambda row: ", ".join(word for word in _origins(protocol, row) if word not in shared)


def _nothing(row: Row) -> str:
    return ""


def _size() -> Column:
    return Column(
        "params\nw/o emb.",
        lambda row: f"{number(row['parameters'], ',.0f')}\n[dim]{number(row['without_embeddings'], ',.0f')}[/dim]",
    )


def _results(by: str) -> list[Column]:
    if by == "kl":
        first = Column("KL\ninterval", lambda row: f"{number(row['kl'])}\n[dim]{interval(row, 'kl')}[/dim]")
        return [first, Column("KL over\nfloor", _decimal("excess_kl")), Column("bits/\nparam", _bits)]
    first = Column("accuracy\ninterval", lambda row: f"{number(row['accuracy'])}\n[dim]{interval(row)}[/dim]")
    return [first, Column("facts\nheld", _decimal("associations", ",.0f")), Column("bits/\nparam", _bits)]


_bits = _decimal("bits_per_parameter", ".2f")


def _baselines(by: str) -> list[Column]:
    if by == "kl":
        return [Column("accu-\nracy", _decimal("accuracy", ".3f")), Column("best\nthere is", _decimal("bayes", ".3f"))]
    names = {"lower\nbound": "lower_bound", "zero-\nhead": "zero_head", "chance": "chance"}
    return [Column(header, _decimal(name, ".3f")) for header, name in names.items()]


def _more(by: str) -> list[Column]:
    other = [("KL", "kl", ".4f"), ("KL over\nfloor", "excess_kl", ".4f")] if by == "accuracy" else []
    shown = [("identifi-\nable", "identifiable", ",.0f"), ("load", "load", ".2f"),
             ("x proven", "ratio_to_bound", ".1f"), ("x convex\noracle", "ratio_to_oracle", ".2f"), *other]  # fmt: skip
    return [Column(header, _decimal(name, form)) for header, name, form in shown]


def _ratios() -> list[Column]:
    shown = [("load at\n99 %", "load_at_99", ".2f"), ("x proven", "ratio_to_bound", ".1f"),
             ("x convex\noracle", "ratio_to_oracle", ".2f"), ("KL over\nfloor", "excess_kl", ".4f")]  # fmt: skip
    return [*(Column(header, _decimal(name, form)) for header, name, form in shown), Column("models", _models)]


def _models(row: Row) -> str:
    return str(row["models"])


def _provenance(protocol: str) -> list[Column]:
    where = Column("records", lambda row: "published" if row["published"] else "yours")
    made = Column("weights", lambda row: origin(protocol))
    said = Column("numbers", lambda row: verification(row["verified"]))
    return [where, made, said, Column("membench", lambda row: escape(row["membench"]))]


def budget_name(budget: int) -> str:
    return f"{budget // 1000}k"


def _budgets(by: str, count: str, wide: bool) -> list[Column]:
    return [Column(f"{by if by == 'accuracy' else 'KL'}\nat {budget_name(budget)}", _at(str(budget), by, count, wide))
            for budget in BUDGETS]  # fmt: skip


def _at(budget: str, by: str, count: str, wide: bool) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        found = row["budgets"][budget][count]
        if found is None:
            return "-"
        shown = number(found[by], DIGITS[by])
        return f"{shown}\n[dim]{interval_ends(found, by)}[/dim]" if wide else shown

    return cell


def interval_ends(row: Row, by: str) -> str:
    low, high = (row[end] for end in INTERVALS[by])
    return "" if low is None or math.isnan(low) else f"{low:{DIGITS[by]}}-{high:{DIGITS[by]}}"


def _area(by: str) -> Column:
    def cell(row: Row) -> str:
        return f"{number(row['area'], DIGITS[by])}\n[dim]{area_interval(row, by)}[/dim]"

    return Column("area\ninterval", cell)


def area_interval(row: Row, by: str) -> str:
    low, high = row["area_low"], row["area_high"]
    return "" if low is None or math.isnan(low) else f"{low:{DIGITS[by]}}-{high:{DIGITS[by]}}"


def _bar() -> Column:
    return Column("", lambda row: f"[cyan]{bar(row['area'])}[/cyan]", justify="left")


def bar(fraction: float) -> str:
    """A bar of blocks that get narrower in steps of an eighth."""
    eighths = 0 if math.isnan(fraction) else round(min(max(fraction, 0.0), 1.0) * BAR * 8)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]).ljust(BAR)[:BAR]


def interval(row: Row, by: str = "accuracy") -> str:
    return interval_ends(row, by) or f"{row['seeds']} seed{'s' if row['seeds'] > 1 else ''}"


def title(common: Row) -> str:
    return f"{common['task']} v{common['task_version']}: {common['task_config']}  |  {protocol_words(common)}"


def protocol_words(common: Row) -> str:
    options = f" ({common['protocol_config']})" if common["protocol_config"] else ""
    return f"protocol {common['protocol']} v{common['protocol_version']}{options}"


def note(common: Row, group: pd.DataFrame, rank: bool = True) -> str:
    """What a reader has to know about the models of a table, and why they are in this order."""
    parts = [f"mean and 95 % interval over {_seeds(group)}"]
    if rank and is_ranked(common["protocol"]):
        parts += [_reason(group), "'=' marks overlapping intervals", "* nothing as small is better"]
    return "; ".join([*parts, *_caveats(common, group)])


def score_note(common: Row, group: pd.DataFrame, count: str = "all") -> str:
    """The same for the scores of its architectures."""
    by = "accuracy" if sorted_by(group) == "accuracy" else "KL"
    what = "parameters" if count == "all" else "parameters without embeddings"
    parts = [
        f"best model with at most that many {what}, {_seeds(group)}",
        f"area: mean of the best {by} with at most p parameters, over log p from {AREA_FROM:,} to {AREA_TO:,}",
    ]
    if is_ranked(common["protocol"]):
        lower = "sorted by area, lower is better: the facts are distributions" if by == "KL" else "sorted by area"
        parts += [lower, "'=' marks overlapping 95 % intervals"]
    return "; ".join([*parts, *_caveats(common, group)])


def _seeds(group: pd.DataFrame) -> str:
    fewest, most = group["seeds"].min(), group["seeds"].max()
    return f"{most if fewest == most else f'{fewest} to {most}'} seed{'s' if most > 1 else ''}"


def _reason(group: pd.DataFrame) -> str:
    if sorted_by(group) == "kl":
        return "sorted by KL, lower is better, because the facts are distributions and have no accuracy of 1 to reach"
    return "sorted by accuracy"


def _caveats(common: Row, group: pd.DataFrame) -> list[str]:
    ranks = is_ranked(common["protocol"])
    stopped = int(group["converged"].eq(False).sum()) if ranks else 0
    return [
        *([] if ranks else ["not ranked"]),
        *(["constructed, not trained"] if common["protocol"] == "construct" else []),
        *([f"{stopped} row(s) could still improve with more steps"] if stopped else []),
    ]


def rows_as_json(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The models of all tables as plain data, with ranks; NaN is null."""
    return [told(row, common["protocol"]) for common, group in ranked_tables(rows) for row in _rows(group)]


def told(row: Row, protocol: str) -> dict[str, Any]:
    """A model or a score as plain data."""
    shown = {name: value for name, value in row.items() if name not in (*BY_SEED.values(), "verified")}
    if not is_ranked(protocol):
        shown |= {"rank": None, "tied": None}
    return plain({**shown, "origin": origin(protocol), "verification": verification(row["verified"])})


def plain(row: Row) -> dict[str, Any]:
    """As JSON can hold it."""
    return {str(key): _plain(value) for key, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return plain(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
