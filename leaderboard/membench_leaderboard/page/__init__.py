"""The leaderboard as one HTML file that needs no network: readable without scripts, and more with them.

Everything in a board may come from a stranger's record or plugin. The templates escape every text, the data goes in
as JSON that cannot end its element, and the script in page.js writes text and never markup.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import permutations
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from membench.interface.registry import NAME
from membench.measure.metrics import METRICS
from membench.measure.size import COUNTS
from membench_leaderboard.columns import COSTS, MODELS, Column, Row, find, known, number, score_columns, shown
from membench_leaderboard.page.columnar import columnar
from membench_leaderboard.track_scores import tracks_asking
from membench_leaderboard.track_tables import GAP, PROFILE, place, profile_texts, said_headers, said_texts
from membench_leaderboard.tracks import size_name
from membench_leaderboard.words import MARKS, PARETO, counted, tags, title

SIZES = tuple(count.field for count in COUNTS.values())
BEST = ("accuracy", "kl", *SIZES, "bits_per_parameter")  # what a panel says of the best row


@dataclass(frozen=True)
class Grid:
    """A table of the page."""

    kind: str  # rows or scores
    number: int  # of the board's table that it shows
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    by: str

    def parts(self, column: Column, row: Row) -> list[tuple[str, str, str]]:
        """What is in a cell: a number and its interval, for each way to count parameters if that matters."""
        if column.decides(self.by):
            return [("", column.text(row, tight=True), column.interval_or_seeds(row))]
        counts = {_short(count): count for count in COUNTS} if column.counted else {"": "all"}
        return [
            (name, column.text(row, count, tight=True), column.interval(row, count)) for name, count in counts.items()
        ]


def page(data: Mapping[str, Any]) -> str:
    """The whole board as HTML; `data` is what board_data returns."""
    data = _shown_data(data)
    names = sorted({row["architecture"] for table in (*data["tables"], *data["tracks"]) for row in table["rows"]})
    grids = [(_scores_grid(at, table), _rows_grid(at, table)) for at, table in enumerate(data["tables"])]
    style, script = _style(), _file("page.js")
    text = _templates().get_template("page.html").render(
        data={**columnar(brief(data)), **_for_the_script(names), "axes": (axes := _axes(data))},
        membench=data["membench"],
        axes=axes,
        boards=list(zip(data["tables"], grids, strict=True)),
        choices={key: _choices(data, key) for key in ("task", "protocol")},
        panels=[_panel(name, data) for name in names],
        numbers={name: number for number, name in enumerate(names)},
        tracks=[_track_grid(track) for track in data["tracks"]],
        totals=_totals(data, names),
        glossary=_glossary([grid for pair in grids for grid in pair]),
        style=style,
        script=script,
        policy=_policy(style, script),
    )  # fmt: skip
    return text.encode("utf-8", "replace").decode("utf-8")  # JSON can spell halves of characters, files cannot


def _shown_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows: a table that is part of a track is shown there, by sizes, and its models once."""
    tables = [table for table in data["tables"] if not tracks_asking(table)]
    return {**data, "tracks": data.get("tracks", []), "tables": tables}


def brief(value: Any) -> Any:
    """For the script, which needs no more digits than a screen shows."""
    if isinstance(value, float):
        return int(rounded) if (rounded := float(f"{value:.6g}")).is_integer() else rounded
    if isinstance(value, Mapping):
        return {key: brief(one) for key, one in value.items()}
    return [brief(one) for one in value] if isinstance(value, list) else value


@functools.cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("membench_leaderboard", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    made.globals |= {"COUNTS": COUNTS, "PARETO": PARETO}
    made.filters |= {
        "anchor": _anchor,
        "panel_anchor": _panel_anchor,
        "direction": _direction,
        "tags": tags,
        "title": title,
    }
    return made


def _file(name: str) -> str:
    return (files("membench_leaderboard") / "page" / name).read_text("utf-8")


def _style() -> str:
    """With rules by which a cell shows one of its ways to count parameters: the first, until the script chooses."""
    hide = "td > .{} {{ display: none; }}\n"
    rules = [f'[data-counting="{chosen}"] {hide.format(_short(other))}' for chosen, other in permutations(COUNTS, 2)]
    rules += [f":root:not([data-counting]) {hide.format(_short(other))}" for other in list(COUNTS)[1:]]
    return _file("page.css") + "".join(rules)


def _short(count: str) -> str:
    """The class of what is counted so; it is in thousands of cells."""
    return f"n{list(COUNTS).index(count)}"


def _policy(style: str, script: str) -> str:
    """No network and no code but ours: an injected script would not run even if it got into the page."""
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _for_the_script(names: Sequence[str]) -> dict[str, Any]:
    """What page.js needs beside the board: names in the order that gives each its look, and the columns' properties."""
    return {
        "names": names,
        "labels": {name: metric.label for name, metric in METRICS.items()},
        "per_parameter": [column.key for column in MODELS if column.per_parameter],
        "lines": [{"key": one.key, "name": one.line, "tables": one.page} for one in MODELS if one.line],
        "counts": {word: asdict(count) for word, count in COUNTS.items()},
    }


def _axes(data: Mapping[str, Any]) -> dict[str, str]:
    """The costs that at least two models differ in, by the column: what curves can be drawn over."""
    models = [row for table in data["tables"] for row in table["rows"]]
    tasks = [told for track in data["tracks"] for row in track["rows"] for told in row["tasks"].values() if told]
    models += [cell for told in tasks for cell in told["sizes"] if cell]
    return {one.key: one.words for one in COSTS if len({row[one.key] for row in models} - {None, 0}) > 1}


def _choices(data: Mapping[str, Any], key: str) -> list[str]:
    """The tasks or protocols of all tables and tracks."""
    asked = [task["task"] for track in data["tracks"] for task in track["tasks"]]
    of_tracks = asked if key == "task" else [track["protocol"] for track in data["tracks"]]
    return list(dict.fromkeys([*of_tracks, *(table[key] for table in data["tables"])]))


def _totals(data: Mapping[str, Any], names: Sequence[str]) -> str:
    rows = sum(len(table["rows"]) for table in data["tables"])
    tasks = [told for track in data["tracks"] for row in track["rows"] for told in row["tasks"].values() if told]
    models = sum(cell is not None for told in tasks for cell in told["sizes"])
    parts = [counted(len(names), "architecture")]
    parts += [counted(len(data["tracks"]), "track"), counted(models, "model")] if data["tracks"] else []
    return ", ".join([*parts, *([counted(len(data["tables"]), "table"), counted(rows, "row")] if rows else [])])


def _rows_grid(number: int, table: Row) -> Grid:
    columns = shown(MODELS, "page", table["sorted_by"], table["rows"])
    columns.sort(key=lambda column: column.key == "id")  # at the end, whatever else moves there
    return Grid("rows", number, f"Every row of {title(table)}", columns, table["rows"], table["sorted_by"])


def _scores_grid(number: int, table: Row) -> Grid:
    by, scores = table["sorted_by"], table["scores"]
    columns = shown(score_columns(by), "page", by, scores)
    return Grid("scores", number, f"Scores of each architecture on {title(table)}", columns, scores, by)


def _track_grid(track: Row) -> dict[str, Any]:
    """The overview of a track, as texts: architectures by tasks."""
    tasks = [task["name"] for task in track["tasks"]]
    more = said_headers(track["rows"])
    rows = [
        {**row, "place": place(row), "scores": [_score_parts(row["tasks"][name]) for name in tasks],
         "ends": [_text_parts(text) for text in (*profile_texts(row), *said_texts(row, more))]}
        for row in track["rows"]
    ]  # fmt: skip
    curves = [{"name": name, **_curve(track, name), "number": at} for at, name in enumerate(tasks)]
    headers = [*PROFILE, "mean rank", *more]
    return {**track, "names": tasks, "rows": rows, "curves": curves, "headers": headers}


def _curve(track: Row, task: str) -> dict[str, Any]:
    """What architectures reached at each size on one task, best first."""
    ran = [row for row in track["rows"] if row["tasks"][task]]
    ran.sort(key=lambda row: (row["tasks"][task]["rank"], -row["tasks"][task]["score"]))
    more = said_headers([row["tasks"][task] for row in ran])
    rows = [
        {"architecture": row["architecture"], "published": row["published"], "place": place(row["tasks"][task]),
         "said": [_text_parts(text) for text in said_texts(row["tasks"][task], more)],
         "cells": [GAP if cell is None else number(cell["value"], ".3f") for cell in row["tasks"][task]["sizes"]]}
        for row in ran
    ]  # fmt: skip
    return {"rows": rows, "headers": [*more, *map(size_name, track["sizes"])]}


def _text_parts(text: str) -> tuple[str, str]:
    """A number and its interval."""
    value, _, interval = text.partition(" (")
    return value, interval.removesuffix(")")


def _score_parts(told: Row | None) -> tuple[str, str, str]:
    """A score, its interval, and how many sizes it is from if some are missing."""
    if told is None:
        return GAP, "", ""
    interval = f"{told['low']:.3f}-{told['high']:.3f}" if known(told["low"]) and known(told["high"]) else ""
    sizes = len(told["sizes"])
    return number(told["score"], ".3f"), interval, f"{sizes - told['gaps']} of {sizes} sizes" if told["gaps"] else ""


def _direction(column: Column) -> str:
    """The order that a reader wants first."""
    return "descending" if column.form and column.better > 0 else "ascending"


def _anchor(row: Row) -> str:
    return f"row-{quote(row['id'], safe='')}{'-published' if row['published'] else ''}"


def _panel_anchor(number: int, name: str) -> str:
    """A permalink by the name, where that can be part of an address; no name begins with '-'."""
    return f"architecture-{name}" if NAME.fullmatch(name) else f"architecture--{number}"


def _panel(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """What an architecture is, its best row on each table, and how to measure that again."""
    about = data["architectures"].get(name, {})
    firsts = [next((row for row in table["rows"] if row["architecture"] == name), None) for table in data["tables"]]
    best = [
        {"number": number, "table": table, "row": row, "facts": _best_facts(row, table["sorted_by"])}
        for number, (table, row) in enumerate(zip(data["tables"], firsts, strict=True))
        if row
    ]
    places = {track["title"]: _places(track, name) for track in data["tracks"]}
    told = {"summary": about.get("summary"), "reference": about.get("reference")}
    return {"name": name, **told, "best": best, "places": {title: some for title, some in places.items() if some}}


def _places(track: Row, name: str) -> list[dict[str, str]]:
    """On each task of a track."""
    return [
        {"task": task, "place": f"{place(told)} of {len(track['rows'])}",
         "score": _with_interval(*_score_parts(told)[:2])}
        for row in track["rows"] if row["architecture"] == name for task, told in row["tasks"].items() if told
    ]  # fmt: skip


def _best_facts(row: Row, by: str) -> dict[str, str]:
    columns = [find(MODELS, key) for key in BEST if key != "kl" or by == "kl"]
    facts = {one.header: _with_interval(one.text(row), one.interval(row)) for one in columns}
    if row["lower_bound_name"]:
        facts["proven accuracy"] = _with_interval(find(MODELS, "lower_bound").text(row), row["lower_bound_name"])
    return facts


def _with_interval(text: str, interval: str) -> str:
    return f"{text} ({interval})" if interval else text


def _glossary(grids: Sequence[Grid]) -> list[tuple[str, str, str]]:
    """What columns and marks mean: the column's name, its headers in all tables, and the meaning."""
    columns = [column for kind in ("rows", "scores") for grid in grids if grid.kind == kind for column in grid.columns]
    meanings = {column.name: column.meaning for column in columns}
    headers = {name: dict.fromkeys(one.header for one in columns if one.name == name) for name in meanings}
    found = [(name, ", ".join(headers[name]), meaning) for name, meaning in meanings.items()]
    return [*found, *(("", word, meaning) for word, meaning in MARKS.items())]
