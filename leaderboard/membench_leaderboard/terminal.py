"""The board in a terminal: the name of every architecture whole, and as many columns as fit beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import pandas as pd
import rich.table
from rich.cells import cell_len
from rich.text import Text

from membench.printing import printable
from membench_leaderboard.columns import MODELS, Column, Row, find, score_columns, shown
from membench_leaderboard.rows import tables
from membench_leaderboard.scores import standings
from membench_leaderboard.track_tables import HEADERS, curve, overview, overview_note
from membench_leaderboard.tracks import Track
from membench_leaderboard.words import note, provenance, score_note, shared_provenance, title

GAP = 2  # cells between columns
OPTIONS = 16  # cells that the options of a model get before further columns do; longer ones wrap
BAR = 8  # cells of a bar


@dataclass(frozen=True)
class _Strip:
    """A column as it is printed; every cell has one line or more, and those after the first are dim."""

    header: str
    cells: Sequence[tuple[str, ...]]
    style: str = ""
    justify: Literal["left", "right"] = "right"
    kept: bool = False  # however narrow the terminal is

    @cached_property
    def width(self) -> int:
        lines = (line for cell in self.cells for line in cell)
        return max(map(cell_len, (*self.header.split("\n"), *lines)))


@dataclass(frozen=True)
class _Layout:
    """Columns that may be shown together, and whether provenance is said in words because it has none."""

    strips: Sequence[_Strip]
    in_words: bool


@dataclass(frozen=True)
class _Board:
    """What is printed whatever the width."""

    title: str
    caption: str
    ranks: _Strip | None
    header: str  # of the names
    names: Sequence[tuple[str, ...]]  # and what else is known of a row, in further lines
    rows: Sequence[Row]


def boards(rows: pd.DataFrame, *, rank: bool = True, width: int = 80) -> Iterator[rich.table.Table]:
    """A table of models for each task config and protocol, with as many columns as fit the width.

    Without ranks it is about what was just run, and says nothing of where rows came from.
    """
    for table in tables(rows):
        ranked, models = rank and table.ranked, table.models
        names = [
            _lines(f"{row['architecture']}{'*' if ranked and row['pareto'] else ''}", row["config"]) for row in models
        ]
        ranks = _ranks(models) if ranked else None
        board = _Board(title(table.common), note(table, rank), ranks, "model", names, models)
        strips, sources = _strips(MODELS, models, table.by)
        layouts = [_Layout([*strips, *sources], False)] if rank else []
        layouts += [_Layout(some, rank) for some in _narrower(strips)]
        yield _fitted(board, layouts, width)


def score_boards(
    rows: pd.DataFrame, *, count: str = "all", width: int = 80, bars: bool = False
) -> Iterator[rich.table.Table]:
    """A table of architectures for each task config and protocol, with as many columns as fit the width."""
    for table in tables(rows):
        scores, columns = standings(table), score_columns(table.by)
        names = [_lines(row["architecture"]) for row in scores]
        ranks = _ranks(scores) if table.ranked else None
        board = _Board(title(table.common), score_note(table, count), ranks, "architecture", names, scores)
        strips, sources = _strips(columns, scores, table.by, count)
        with_intervals, _ = _strips(columns, scores, table.by, count, intervals=True)
        if bars and table.by == "accuracy":
            for some in (strips, with_intervals):
                some.insert(1 + next(i for i, strip in enumerate(some) if strip.kept), _bars(scores))
        layouts = [_Layout([*with_intervals, *sources], False), _Layout(with_intervals, True)]
        yield _fitted(board, [*layouts, *(_Layout(some, True) for some in _narrower(strips))], width)


def overviews(tracks: Iterable[tuple[Track, Sequence[Row]]], *, width: int = 80) -> Iterator[rich.table.Table]:
    """For each track a table of architectures by tasks; then one for each task with all sizes."""
    for track, rows in tracks:
        yield from _plain(track.title, *overview(track, rows), note=overview_note(track), width=width)
        for task in track.tasks:
            if any(row["tasks"][task.name] for row in rows):
                title = f"{track.name}, {task.name}: {task.task} ({task.config})"
                yield from _plain(title, *curve(track, task.name, rows), note="", width=width)


def _plain(
    title: str, headers: Sequence[str], lines: Sequence[Sequence[str]], *, note: str, width: int
) -> Iterator[rich.table.Table]:
    """A table; where not all columns fit, the rest follows in further ones. The interval of a score goes below it."""
    cells = [
        [_lines(*text.split(" ", 1)) if at > 1 else _lines(text) for at, text in enumerate(line)] for line in lines
    ]
    strips = [_Strip(header, [line[at] for line in cells]) for at, header in enumerate(headers)]
    parts = _parts(strips, width)
    for number, part in enumerate(parts):
        more = f", continued ({number + 1} of {len(parts)})" if number else ""
        yield _part(f"{title}{more}", part, note if number == 0 else "")


def _parts(strips: Sequence[_Strip], width: int) -> list[list[_Strip]]:
    """Columns that fit beside each other, each time after those of rank and name."""
    fixed = list(strips[: len(HEADERS)])
    parts = [list(fixed)]
    for strip in strips[len(HEADERS) :]:
        needed = sum(one.width + GAP for one in (*parts[-1], strip)) - GAP
        if needed > width and len(parts[-1]) > len(fixed):
            parts.append(list(fixed))
        parts[-1].append(strip)
    return parts


def _part(title: str, strips: Sequence[_Strip], note: str) -> rich.table.Table:
    table = rich.table.Table(
        title=Text(printable(title)), caption=Text(f"{printable(note)}\n" if note else " "), box=None
    )
    table.title_justify = table.caption_justify = "left"
    table.header_style, table.padding, table.pad_edge = "bold", (0, GAP, 0, 0), False
    for at, strip in enumerate(strips):
        table.add_column(Text(strip.header), justify="left" if at == 1 else "right", no_wrap=True)
    for row in zip(*(strip.cells for strip in strips), strict=True):
        table.add_row(
            *(_text(cell, "") for cell in row),
            style="green" if row[0][0].startswith("1") and row[0][0].strip("=") == "1" else None,
        )
    return table


def _lines(first: object, *more: object) -> tuple[str, ...]:
    return printable(first), *(printable(line) for line in more if line)


def _strips(
    columns: Sequence[Column], rows: Sequence[Row], by: str, count: str = "all", intervals: bool = False
) -> tuple[list[_Strip], list[_Strip]]:
    """The columns of numbers and those of provenance, without rank and name."""
    found = [one for one in shown(columns, "terminal", by, rows) if one.key not in ("rank", "architecture")]
    strips = [(one, _strip(one, columns, rows, by, count, intervals)) for one in found]
    return [strip for one, strip in strips if not one.provenance], [strip for one, strip in strips if one.provenance]


def _strip(
    column: Column, columns: Sequence[Column], rows: Sequence[Row], by: str, count: str, intervals: bool
) -> _Strip:
    decides = column.decides(by)
    second = find(columns, column.beneath) if column.beneath else None
    header = f"{column.header}\ninterval" if decides else column.lines
    header = f"{header}\n{second.lines}" if second else header

    def cell(row: Row) -> tuple[str, ...]:
        if decides:
            beneath = column.interval_or_seeds(row)
        elif second:
            beneath = second.text(row, tight=True)
        else:
            beneath = column.interval(row, count) if column.budget and intervals else ""
        return _lines(column.text(row, count, tight=True), beneath)

    return _Strip(header, [cell(row) for row in rows], kept=decides)


def _ranks(rows: Sequence[Row]) -> _Strip:
    rank = find(MODELS, "rank")
    return _Strip(rank.header, [(rank.text(row),) for row in rows])


def _bars(rows: Sequence[Row]) -> _Strip:
    return _Strip("", [(bar(row["area"]),) for row in rows], style="cyan", justify="left")


def bar(fraction: float) -> str:
    """A bar of blocks that get narrower in steps of an eighth."""
    eighths = 0 if math.isnan(fraction) else round(min(max(fraction, 0.0), 1.0) * BAR * 8)
    return ("█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]).ljust(BAR)[:BAR]


def _narrower(strips: Sequence[_Strip]) -> Iterator[list[_Strip]]:
    """All columns, and then fewer and fewer: the last goes first, and what a table is sorted by never."""
    left = list(strips)
    yield left
    for strip in reversed(strips):
        if not strip.kept:
            left = [one for one in left if one is not strip]
            yield left


def _fitted(board: _Board, layouts: Sequence[_Layout], width: int) -> rich.table.Table:
    """The board in the first layout that leaves room for the names; in the last one if none does."""
    longest = max(cell_len(line) for lines in board.names for line in lines)
    needed = max(*(cell_len(lines[0]) for lines in board.names), len(board.header), min(OPTIONS, longest))
    room = width - (board.ranks.width + GAP if board.ranks else 0)
    left = [room - sum(GAP + strip.width for strip in layout.strips) for layout in layouts]
    chosen = next((i for i, cells in enumerate(left) if cells >= needed), len(layouts) - 1)
    board = _with_provenance(board) if layouts[chosen].in_words else board
    return _printed(board, layouts[chosen].strips, max(left[chosen], OPTIONS))


def _with_provenance(board: _Board) -> _Board:
    """In words: once below for what all rows share, and beside its name for what is a row's own."""
    shared = shared_provenance(board.rows)
    own = (", ".join(word for word in provenance(row) if word not in shared) for row in board.rows)
    names = [_lines(*lines, words) for lines, words in zip(board.names, own, strict=True)]
    caption = f"{board.caption}; all rows: {', '.join(shared)}" if shared else board.caption
    return replace(board, caption=caption, names=names)


def _printed(board: _Board, strips: Sequence[_Strip], room: int) -> rich.table.Table:
    table = rich.table.Table(
        title=Text(printable(board.title)), caption=Text(f"{printable(board.caption)}\n"), box=None
    )
    table.title_justify = table.caption_justify = "left"
    table.header_style, table.padding, table.pad_edge = "bold", (0, GAP, 0, 0), False
    if board.ranks:
        table.add_column(board.ranks.header, justify="right", no_wrap=True)
    names = _Strip(board.header, board.names)
    table.add_column(names.header, overflow="fold", width=min(names.width, room))
    for strip in strips:
        table.add_column(Text(strip.header), justify=strip.justify, no_wrap=True)
    every = [*([board.ranks] if board.ranks else []), names, *strips]
    for row, cells in zip(board.rows, zip(*(strip.cells for strip in every), strict=True), strict=True):
        style = "green" if board.ranks and row["rank"] == 1 else None
        table.add_row(*(_text(cell, strip.style) for cell, strip in zip(cells, every, strict=True)), style=style)
    return table


def _text(lines: Sequence[str], style: str) -> Text:
    """Text and not markup, which a name could be taken for."""
    first, *more = lines
    return Text("\n").join([Text(first, style), *(Text(line, "dim") for line in more)])
