"""An explanation for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from membench_leaderboard.table import number

Story = Mapping[str, Any]


def print_explanation(story: Story, out: Console) -> None:
    """Commands and paths are printed in one line each, whatever the width, so that they can be copied."""
    for part in _score(story) if story["kind"] == "score" else _model(story):
        out.print(part, soft_wrap=isinstance(part, str))


def _model(story: Story) -> Iterator[str | Table]:
    yield f"[bold]{escape(story['architecture'])}[/bold] {escape(story['config'])}  (id {escape(story['id'])})"
    yield escape(story["title"])
    yield escape(", ".join(_facts(story))) + "\n"
    yield _seeds(story)
    yield from _folders(story)
    yield from _choices(story)
    yield ""
    yield _bounds(story)
    silent = sum(bound["status"] != "applies" or bound["value"] is None for bound in story["bounds"])
    yield f"[dim]{silent} more say nothing here: see them, and why, with --json[/dim]\n"
    for environment in story["environment"]:
        yield "environment: " + escape(", ".join(f"{key} {value}" for key, value in environment.items()))
    yield from (f"note: {escape(note)}" for note in story["notes"])
    yield "\nAgain:\n  " + escape(story["command"])


def _facts(story: Story) -> list[str]:
    rank = f"rank {story['rank']}" if story["rank"] else "not ranked"
    parameters = f"{number(story['parameters'], ',.0f')} parameters"
    without = f"{number(story['without_embeddings'], ',.0f')} without embeddings"
    mean = f"accuracy {number(story['accuracy'])}, KL {number(story['kl'])}"
    return [rank, f"{parameters} ({without})", mean, story["origin"], story["verification"],
            "published" if story["published"] else "yours"]  # fmt: skip


def _listing(title: str, *headers: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for place, header in enumerate(headers):
        table.add_column(header, overflow="fold", justify="right" if 0 < place < len(headers) - 1 else "left")
    return table


def _seeds(story: Story) -> Table:
    table = _listing("Records", "seed", "accuracy", "KL", "steps", "seconds", "record")
    for one in story["seeds"]:
        steps = "-" if one["steps"] is None else str(one["steps"])
        open_end = "" if one["converged"] in (True, None) else "+"
        numbers = (number(one["accuracy"]), number(one["kl"]), steps + open_end, number(one["seconds"], ".1f"))
        table.add_row(str(one["seed"]), *numbers, escape(Path(one["record"]).name))
    return table


def _folders(story: Story) -> Iterator[str]:
    for folder in sorted({str(Path(one["record"]).parent) for one in story["seeds"]}):
        yield f"records in {escape(folder)}"


def _choices(story: Story) -> Iterator[str]:
    if any(one["converged"] is False for one in story["seeds"]):
        yield "[dim]+ it could still improve with more steps[/dim]"
    chosen = {", ".join(f"{key}={value}" for key, value in one["choice"].items()) for one in story["seeds"]} - {""}
    for words in sorted(chosen):
        yield "rate and betas: " + escape(words)
    for words in sorted({str(one["construction"]) for one in story["seeds"] if one["construction"]}):
        yield "construction: " + escape(words)
    for words in sorted({str(note) for one in story["seeds"] for note in one["notes"]}):
        yield "note: " + escape(words)


def _bounds(story: Story) -> Table:
    table = _listing("Bounds, mean over seeds", "name", "value", "on")
    for bound in story["bounds"]:
        if bound["status"] == "applies" and bound["value"] is not None:
            words = f"{bound['quantity']}, {bound['direction']}"
            restricted = f" ({bound['restricted_to']})" if bound["restricted_to"] else ""
            table.add_row(escape(str(bound["name"])), f"{bound['value']:.6g}", escape(words + restricted))
    return table


def _score(story: Story) -> Iterator[str | Table]:
    by = story["sorted_by"]
    yield f"[bold]{escape(story['architecture'])}[/bold]  {escape(story['title'])}"
    rank = f"rank {story['rank']}, " if story["rank"] else "not ranked, "
    yield f"{rank}area {number(story['area'])}: the sum of share times {by if by == 'accuracy' else 'KL'}\n"
    table = _listing("Its area is made of", "parameters up to", "share", by if by == "accuracy" else "KL", "model", "")
    for piece in story["pieces"]:
        table.add_row(*_piece(piece, by))
    yield table
    yield ""
    yield "Peak bits per parameter " + number(story["peak_bits_per_parameter"], ".2f") + _load(story)
    yield f"\nExplain one of its {len(story['models'])} models by its id; again, for those that count:"
    for command in dict.fromkeys(piece["command"] for piece in story["pieces"] if piece["command"]):
        yield "  " + escape(command)


def _load(story: Story) -> str:
    return f", load at 99 % accuracy {number(story['load_at_99'], '.2f')}" if story["load_at_99"] else ""


def _piece(piece: Story, by: str) -> tuple[str, ...]:
    ends = f"{piece['from']:,.0f} to {piece['to']:,.0f}"
    if "id" not in piece:
        return ends, number(piece["share"], ".3f"), "-", "", "nothing fits"
    return ends, number(piece["share"], ".3f"), number(piece[by]), escape(piece["id"]), escape(piece["config"])
