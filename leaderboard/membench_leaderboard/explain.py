"""How a row of the board came about: its records, choices, bounds and machine, and the command that makes it again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from membench.engine.protocols.protocol import PROTOCOLS
from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.records.record import Record
from membench.records.store import Entry
from membench_leaderboard.board import rerun_commands
from membench_leaderboard.rows import sorted_by
from membench_leaderboard.scores import Piece, pieces, standings
from membench_leaderboard.table import is_ranked, origin, plain, protocol_words, ranked_tables, title, verification

Row = dict[str, Any]
LISTED = 8  # candidates that an error names


@dataclass(frozen=True)
class _Candidate:
    """Something that can be explained: some models of one architecture in one table, and the rank they share."""

    common: Mapping[str, Any]
    rank: int | None
    architecture: str
    published: bool
    models: list[Row]
    by: str

    @property
    def words(self) -> str:
        model = self.models[0]
        who = f"{self.architecture} {model['config']} ({model['id']})" if len(self.models) == 1 else self.architecture
        where = f"{self.common['task']} ({self.common['task_config']}), {self.common['protocol']}"
        return f"{who} on {where}{', published' if self.published else ''}"


def explain(
    found: Sequence[Entry], rows: pd.DataFrame, text: str, registry: Registry, *, models: bool = False
) -> dict[str, Any]:
    """The story of the row that `text` means: a rank, an architecture, or the start of an id.

    Ranks are those of the models, or of the architectures. UsageError when nothing is meant, or too much.
    """
    chosen = _chosen(text, _candidates(rows, models), _candidates(rows, True))
    commands = rerun_commands(found, registry)
    told = [_model(row, chosen, found, commands, registry) for row in chosen.models]
    if len(told) == 1:
        return told[0]
    return plain(_score(chosen, {row["id"]: row["command"] for row in told}))


def _candidates(rows: pd.DataFrame, models: bool) -> list[_Candidate]:
    return [one for common, group in ranked_tables(rows) for one in _of_table(common, group, models)]


def _of_table(common: Mapping[str, Any], group: pd.DataFrame, models: bool) -> Iterable[_Candidate]:
    rows = [{str(name): value for name, value in row.items()} for row in group.to_dict("records")]
    ranks, by = is_ranked(common["protocol"]), sorted_by(group)
    if models:
        for row in rows:
            yield _Candidate(common, row["rank"] if ranks else None, row["architecture"], row["published"], [row], by)
        return
    for one in standings(group):
        who = one["architecture"], one["published"]
        own = [row for row in rows if (row["architecture"], row["published"]) == who]
        yield _Candidate(common, one["rank"] if ranks else None, *who, own, by)


def _chosen(text: str, candidates: Sequence[_Candidate], models: Sequence[_Candidate]) -> _Candidate:
    ranked = [one for one in candidates if text.isdigit() and one.rank == int(text)]
    named = [one for one in candidates if one.architecture == text]
    marked = [one for one in models if one.models[0]["id"].startswith(text)] if text else []
    meant = ranked or named or marked
    yours = [one for one in meant if not one.published]
    meant = yours or meant
    if len(meant) == 1:
        return meant[0]
    if not meant:
        names = ", ".join(dict.fromkeys(one.architecture for one in candidates))
        raise UsageError(
            f"--explain {text}: no row has that rank, architecture or start of an id; the architectures are: {names}"
        )
    shown = "; ".join(one.words for one in meant[:LISTED]) + ("; .." if len(meant) > LISTED else "")
    raise UsageError(
        f"--explain {text} could mean {len(meant)} rows: {shown}; "
        "say which with --task, -T and --protocol, by its architecture, or by its id"
    )


def _score(chosen: _Candidate, commands: Mapping[str, str]) -> dict[str, Any]:
    """An architecture with several models: which of them its area is made of."""
    (standing,) = standings(pd.DataFrame(chosen.models))
    return {
        "kind": "score", "architecture": chosen.architecture, "title": title(chosen.common), "rank": chosen.rank,
        "published": chosen.published, "sorted_by": chosen.by,
        "pieces": [_piece(piece, chosen.by, commands) for piece in pieces(chosen.models, chosen.by)],
        **{key: standing[key] for key in ("area", "area_low", "area_high", "budgets", "peak_bits_per_parameter",
                                          "load_at_99", "ratio_to_bound", "ratio_to_oracle", "excess_kl")},
        "models": [{key: row[key] for key in ("id", "config", "parameters", "without_embeddings", "accuracy", "kl",
                                              "bits_per_parameter", "load")} for row in chosen.models],
    }  # fmt: skip


def _piece(piece: Piece, by: str, commands: Mapping[str, str]) -> Row:
    row = piece.row
    told = {key: row[key] for key in ("id", "config", "parameters", by, "seeds")} if row else {}
    command = commands[row["id"]] if row else None
    return {"from": piece.start, "to": piece.end, "share": piece.weight, **told, "command": command}


def _model(
    row: Row,
    chosen: _Candidate,
    found: Iterable[Entry],
    commands: Mapping[tuple[str, bool], str],
    registry: Registry,
) -> dict[str, Any]:
    key = (row["id"], row["published"])
    own = [e for e in found if e.record.complete and (e.record.id, e.published) == key]
    records = [entry.record for entry in own]
    shown = ("id", "architecture", "config", "published", "parameters", "without_embeddings", "buffers", "identifiable",
             "accuracy", "low", "high", "kl", "kl_low", "kl_high", "excess_kl", "associations", "bits",
             "bits_per_parameter", "load", "ratio_to_bound", "ratio_to_oracle", "converged", "membench")  # fmt: skip
    story = {
        "kind": "model",
        "title": title(chosen.common),
        "protocol": protocol_words(chosen.common),
        "rank": chosen.rank,
        **{name: row[name] for name in shown},
        "origin": origin(chosen.common["protocol"]),
        "verification": verification(row["verified"]),
        "provider": {key: records[0].architecture.get(key) for key in ("distribution", "version", "commit")},
        "seeds": [_seed(entry) for entry in sorted(own, key=lambda entry: entry.record.seed)],
        "bounds": _bounds(records),
        "environment": _distinct([record.environment for record in records]),
        "git": _distinct([record.git for record in records]),
        "command": commands[key],
        "notes": _notes(records[0], registry),
    }
    return plain(story)


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
    tasks = {name: task.version for name, task in registry.tasks.items()}
    protocols = {name: protocol.version for name, protocol in PROTOCOLS.items()}
    architectures = dict.fromkeys(registry.architectures, record.architecture.get("version"))  # never part of an id
    parts = (
        _note("architecture", record.architecture, architectures),
        _note("task", record.task, tasks),
        _note("protocol", record.protocol, protocols),
    )
    return [note for note in parts if note]


def _note(kind: str, part: Mapping[str, Any], versions: Mapping[str, Any]) -> str | None:
    name, version = part["name"], part.get("version")
    if name not in versions:
        return f"{kind} '{name}' is not installed here; it came from {part.get('distribution') or 'an unknown plugin'}"
    if versions[name] != version:
        return f"{kind} '{name}' is version {versions[name]} here, not {version}: the command makes another trial"
    return None
