"""How a row of the board came about: its records, choices, bounds and machine, and the command that makes it again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from membench.engine.protocols.protocol import PROTOCOLS, Protocol
from membench.interface.registry import Registry
from membench.measure.size import COUNTS
from membench.printing import printable
from membench.records.record import Record
from membench.records.store import Entry
from membench_leaderboard.columns import MODELS, UNKNOWN, Column, number, score_columns
from membench_leaderboard.data import plain
from membench_leaderboard.rerun import rerun_commands
from membench_leaderboard.rows import Row, is_ranked
from membench_leaderboard.scores import Piece, pieces, score
from membench_leaderboard.select import Candidate, find_row
from membench_leaderboard.words import METRIC, title, whose

Story = Mapping[str, Any]
PROVIDER = ("distribution", "distribution_version", "version", "commit", "code_sha256")


def explain(
    entries: Sequence[Entry], rows: pd.DataFrame, text: str, registry: Registry, *, models: bool = False
) -> dict[str, Any]:
    """The story of the row that `text` means: a rank, an architecture, or the start of an id.

    Ranks are those of the models, or of the architectures. UsageError when nothing is meant, or too much.
    """
    chosen = find_row(rows, text, models=models)
    commands = rerun_commands(entries, registry)
    if len(chosen.models) > 1:
        return _architecture_story(chosen, commands)
    return _model_story(chosen, entries, commands, registry)


def _architecture_story(chosen: Candidate, commands: Mapping[tuple[str, bool], str]) -> dict[str, Any]:
    """An architecture with several models: which of them its area is made of."""
    by = chosen.table.by
    scores = score(chosen.models, by)
    listed = (
        "id",
        "config",
        *(count.field for count in COUNTS.values()),
        "accuracy",
        "kl",
        "bits_per_parameter",
        "load",
    )
    story = {
        "kind": "score",
        "title": title(chosen.table.common),
        "sorted_by": by,
        "rank": chosen.rank,
        "architecture": chosen.architecture,
        "published": chosen.published,
        **{column.key: scores[column.key] for column in score_columns(by) if column.data and column.key in scores},
        "pieces": [_piece(piece, by, commands) for piece in pieces(chosen.models, by)],
        "models": [{key: row[key] for key in listed} for row in chosen.models],
    }
    return {key: plain(value) for key, value in story.items()}


def _piece(piece: Piece, by: str, commands: Mapping[tuple[str, bool], str]) -> Row:
    row = piece.row
    told = {key: row[key] for key in ("id", "config", "parameters", by, "seeds")} if row else {}
    command = commands[row["id"], row["published"]] if row else None
    return {"from": piece.start, "to": piece.end, "share": piece.weight, **told, "command": command}


def _model_story(
    chosen: Candidate, entries: Iterable[Entry], commands: Mapping[tuple[str, bool], str], registry: Registry
) -> dict[str, Any]:
    (row,) = chosen.models
    key = (row["id"], row["published"])
    own = [one for one in entries if one.record.complete and (one.record.id, one.published) == key]
    records = [entry.record for entry in own]
    story = {
        "kind": "model",
        "title": title(chosen.table.common),
        **{column.key: row[column.key] for column in MODELS if column.data},
        "provider": {key: records[0].architecture.get(key) for key in PROVIDER},
        "seeds": [_seed(entry) for entry in sorted(own, key=lambda entry: entry.record.seed)],
        "bounds": _bounds(records),
        "environment": _distinct([record.environment for record in records]),
        "git": _distinct([record.git for record in records]),
        "command": commands[key],
        "notes": _notes(records[0], registry),
    }
    return {key: plain(value) for key, value in story.items()}


def _seed(entry: Entry) -> dict[str, Any]:
    record = entry.record
    trace = record.trace
    choice = trace.get("choice")
    return {
        "seed": record.seed,
        "accuracy": record.metrics.get("accuracy"),
        "kl": record.metrics.get("kl"),
        "steps": trace.get("steps"),
        "converged": trace.get("converged") if is_ranked(str(record.protocol["name"])) else None,
        "choice": {name: choice[name] for name in choice if name != "tried"} if isinstance(choice, dict) else {},
        "construction": trace.get("construction"),
        "notes": trace.get("notes") or [],
        "started": record.run.get("started"),
        "seconds": record.run.get("seconds"),
        "data_sha256": record.task.get("data_sha256"),
        "record": entry.source,
        "verified": entry.verified,
    }


def _bounds(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Each bound with the mean of its values over the seeds, or why it says nothing."""
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        for bound in record.bounds:
            if isinstance(bound, Mapping):
                by_name.setdefault(str(bound.get("name")), []).append(bound)
    return [
        {
            **{key: some[0].get(key) for key in ("name", "quantity", "direction", "restricted_to")},
            "status": some[0].get("status", "applies"),
            "value": _mean([bound.get("value") for bound in some]),
            "reason": some[0].get("reason"),
        }
        for some in by_name.values()
    ]


def _mean(values: Iterable[Any]) -> float | None:
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    return math.fsum(numbers) / len(numbers) if numbers else None


def _distinct(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in parts:
        if part not in found:
            found.append(part)
    return found


def _notes(record: Record, registry: Registry) -> list[str]:
    """Why the command would not make the same record here, if it would not."""

    def fits(protocol: Protocol) -> tuple[bool, bool]:
        return protocol.version == record.protocol["version"], protocol.current

    parts = (
        _note("architecture", record.architecture, registry.architectures),
        _note("task", record.task, registry.tasks),
        _note("protocol", record.protocol, {one.name: one for one in sorted(PROTOCOLS.values(), key=fits)}),
    )
    return [note for note in parts if note]


def _note(kind: str, part: Mapping[str, Any], installed: Mapping[str, Any]) -> str | None:
    name, version = part["name"], part.get("version")
    if name not in installed:
        return f"{kind} '{name}' is not installed here; it came from {part.get('distribution') or 'an unknown plugin'}"
    here = installed[name].version
    if here != version:
        return f"{kind} '{name}' is version {here} here, not {version}: the command makes another trial"
    return None


def print_explanation(story: Story, out: Console) -> None:
    """Commands and paths are printed in one line each, whatever the width, so that they can be copied."""
    for part in _architecture_parts(story) if story["kind"] == "score" else _model_parts(story):
        out.print(part, soft_wrap=not isinstance(part, Table))


def _line(*parts: tuple[object, str] | object) -> Text:
    """A line of text that is not markup; a part may come with its style."""
    styled = [part if isinstance(part, tuple) else (part, "") for part in parts]
    return Text.assemble(*((printable(words), style) for words, style in styled))


def _model_parts(story: Story) -> Iterator[Text | Table]:
    yield _line((story["architecture"], "bold"), f" {story['config']}  (id {story['id']})")
    yield _line(story["title"])
    yield _line(", ".join([_rank(story), story["origin"], story["verification"], whose(story)]))
    yield _numbers(story, MODELS)
    yield _seeds_table(story)
    yield from _folders(story)
    yield from _choices(story)
    yield _bounds_table(story)
    silent = sum(bound["status"] != "applies" or bound["value"] is None for bound in story["bounds"])
    yield _line((f"{silent} more do not apply here; --json has them, with the reasons", "dim"))
    for environment in story["environment"]:
        yield _line("environment: ", ", ".join(f"{key} {value}" for key, value in environment.items()))
    yield from (_line("note: ", note) for note in story["notes"])
    yield from _again("To measure it again:", [story["command"]])


def _again(words: str, commands: Iterable[str]) -> Iterator[Text]:
    yield _line("")
    yield _line(words)
    yield from (_line("  ", command) for command in commands)


def _rank(story: Story) -> str:
    return f"rank {story['rank']}" if story["rank"] else "not ranked"


def _listing(title: str, *headers: str) -> Table:
    table = Table(title=f"\n{title}", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for place, header in enumerate(headers):
        table.add_column(header, overflow="fold", justify="right" if 0 < place < len(headers) - 1 else "left")
    return table


def _numbers(story: Story, columns: Sequence[Column]) -> Table:
    """Every number that is known, with its interval and what it means."""
    row = {key: len(value) if isinstance(value, list) else value for key, value in story.items()}
    table = _listing("Numbers", "", "value", "meaning")
    for column in columns:
        value = column.text(row) if column.form else UNKNOWN
        if value != UNKNOWN:
            interval = f" ({words})" if (words := column.interval(row)) else ""
            table.add_row(_line(column.header), _line(value, interval), _line((column.meaning, "dim")))
    return table


def _seeds_table(story: Story) -> Table:
    table = _listing("Records", "seed", "accuracy", "KL", "steps", "seconds", "record")
    for one in story["seeds"]:
        steps = UNKNOWN if one["steps"] is None else str(one["steps"])
        open_end = "" if one["converged"] in (True, None) else "+"
        cells = (number(one["accuracy"]), number(one["kl"]), steps + open_end, number(one["seconds"], ".1f"))
        table.add_row(str(one["seed"]), *map(_line, cells), _line(Path(one["record"]).name))
    return table


def _folders(story: Story) -> Iterator[Text]:
    for folder in sorted({str(Path(one["record"]).parent) for one in story["seeds"]}):
        yield _line("records in ", folder)


def _choices(story: Story) -> Iterator[Text]:
    if any(one["converged"] is False for one in story["seeds"]):
        yield _line(("+ could still improve with more steps", "dim"))
    chosen = {", ".join(f"{key}={value}" for key, value in one["choice"].items()) for one in story["seeds"]} - {""}
    yield from (_line("learning rate and betas: ", words) for words in sorted(chosen))
    constructions = {str(one["construction"]) for one in story["seeds"] if one["construction"]}
    yield from (_line("construction: ", words) for words in sorted(constructions))
    notes = {str(note) for one in story["seeds"] for note in one["notes"]}
    yield from (_line("note: ", words) for words in sorted(notes))


def _bounds_table(story: Story) -> Table:
    table = _listing("Bounds, mean over seeds", "name", "value", "on")
    for bound in story["bounds"]:
        if bound["status"] == "applies" and bound["value"] is not None:
            restricted = f" ({bound['restricted_to']})" if bound["restricted_to"] else ""
            words = f"{bound['quantity']}, {bound['direction']}{restricted}"
            table.add_row(_line(bound["name"]), f"{bound['value']:.6g}", _line(words))
    return table


def _architecture_parts(story: Story) -> Iterator[Text | Table]:
    by = story["sorted_by"]
    yield _line((story["architecture"], "bold"), f"  {story['title']}")
    yield _line(f"{_rank(story)}, {story['origin']}, {story['verification']}, {whose(story)}")
    yield _numbers(story, score_columns(by))
    table = _listing(f"Its area is the sum of share times {METRIC[by]}", "parameters", "share", METRIC[by], "model", "")
    for piece in story["pieces"]:
        table.add_row(*map(_line, _piece_cells(piece, by)))
    yield table
    commands = dict.fromkeys(piece["command"] for piece in story["pieces"] if piece["command"])
    yield _line("")
    yield _line(f"--explain with the id of one of its {len(story['models'])} models tells more.")
    yield from _again("To measure again those that its area is made of:", commands)


def _piece_cells(piece: Story, by: str) -> tuple[str, ...]:
    ends, share = f"{piece['from']:,.0f} to {piece['to']:,.0f}", number(piece["share"], ".3f")
    if "id" not in piece:
        return ends, share, UNKNOWN, "", "nothing fits"
    return ends, share, number(piece[by]), piece["id"], piece["config"]
