"""First places: who holds the best score of each task of a track, since when, and by how much it was taken.

A first place is taken only by a score that is better at p < LEVEL over the seeds that both have, so that luck alone
changes a name at most once in a hundred times. What was taken is written down when it is published.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from membench.errors import UsageError
from membench.records.files import read_regular, write_atomically
from membench.records.record import check_plain, read_json
from membench_leaderboard.published import HERE
from membench_leaderboard.rows import Row
from membench_leaderboard.track_scores import Score, filled, track_rows
from membench_leaderboard.tracks import Track

HISTORY = "history.json"
MAX_BYTES = 16 << 20
LEVEL = 0.01
NORMAL = 1.96  # half of a 95 % interval, in standard errors


@dataclass(frozen=True)
class FirstPlace:
    """One holder of a first place, from the day on that it was published."""

    track: str
    task: str
    architecture: str
    since: str  # a date
    score: float
    over: str | None = None  # who held it before; None: nobody
    by: float | None = None  # the difference of the scores, when it was taken
    p: float | None = None  # of that difference, if both were as good

    @property
    def place(self) -> tuple[str, str]:
        return self.track, self.task


_KINDS = {
    **dict.fromkeys(("track", "task", "architecture", "since"), (str,)),
    "score": (float, int),
    "over": (str, type(None)),
    **dict.fromkeys(("by", "p"), (float, int, type(None))),
}


@dataclass(frozen=True)
class _Entrant:
    """An architecture on one task of a track: its score, and that of each seed where seeds have one."""

    architecture: str
    score: Score
    by_seed: Mapping[int, float]


def read_history(root: Path = HERE) -> list[FirstPlace]:
    """Oldest first. UsageError for a file that is damaged."""
    path = root / HISTORY
    if not path.exists():
        return []
    try:
        return [_first_place(one) for one in read_json(read_regular(path, MAX_BYTES).decode())]
    except (TypeError, ValueError) as error:
        raise UsageError(f"published file '{HISTORY}' is damaged: {error}") from None


def _first_place(told: Any) -> FirstPlace:
    """TypeError or ValueError for anything else."""
    check_plain(told)
    found = FirstPlace(**told)
    for name, kinds in _KINDS.items():
        if type(value := getattr(found, name)) not in kinds:
            raise ValueError(f"its {name} is {ascii(value)[:80]}")
    return found


def write_history(places: Sequence[FirstPlace], root: Path = HERE) -> None:
    lines = [json.dumps(asdict(one)) for one in places]
    write_atomically(root / HISTORY, "[\n" + ",\n".join(lines) + "\n]\n")


def taken(history: Sequence[FirstPlace], rows: pd.DataFrame, today: str) -> Iterator[FirstPlace]:
    """First places that change hands, or that nobody had."""
    holders = {one.place: one.architecture for one in history}
    for (track, task), entrants in _entrants(rows).items():
        holder = next((one for one in entrants if one.architecture == holders.get((track, task))), None)
        for one in entrants:
            if holder is one:
                break  # nobody who is better is so beyond doubt
            where = (track, task, one.architecture, today, one.score.value)
            if holder is None:
                yield FirstPlace(*where)
                break
            if (p := p_value(one, holder)) < LEVEL:
                yield FirstPlace(*where, holder.architecture, one.score.value - holder.score.value, p)
                break


def p_value(one: _Entrant, other: _Entrant) -> float:
    """How likely a score is better by as much, if both were as good: a paired t test over the seeds that both have.

    A search has no score for each seed: there it is the normal test of two intervals.
    """
    from scipy.stats import norm, t

    if one.by_seed and other.by_seed:
        common = sorted(one.by_seed.keys() & other.by_seed.keys())
        gained = np.array([one.by_seed[seed] - other.by_seed[seed] for seed in common])
        if len(gained) < 2:
            return 1.0  # nobody knows how much seeds differ
        error = float(gained.std(ddof=1)) / math.sqrt(len(gained))
        mean = float(gained.mean())
        return float(t.sf(mean / error, len(gained) - 1)) if error > 0 else float(mean <= 0)
    errors = [(some.score.high - some.score.low) / (2 * NORMAL) for some in (one, other)]
    if not all(math.isfinite(error) for error in errors):
        return 1.0
    gained_by = one.score.value - other.score.value
    error = math.hypot(*errors)
    return float(norm.sf(gained_by / error)) if error > 0 else float(gained_by <= 0)


def _entrants(rows: pd.DataFrame) -> dict[tuple[str, str], list[_Entrant]]:
    """For each task of each track, the architectures with the best first."""
    seeds = {(str(row["id"]), bool(row["published"])): row["seed_numbers"] for row in rows.to_dict("records")}
    found: dict[tuple[str, str], list[_Entrant]] = {}
    for track, standings in track_rows(rows):
        for task in track.tasks:
            some = [_entrant(track, row, task.name, seeds) for row in standings if row["tasks"][task.name]]
            if some:
                found[track.name, task.name] = sorted(some, key=lambda one: (-one.score.value, one.architecture))
    return found


def _entrant(track: Track, row: Row, task: str, seeds: Mapping[tuple[str, bool], Iterable[int]]) -> _Entrant:
    score: Score = row["tasks"][task]["score"]
    sums: list[dict[int, float]] = []
    for part, cell in filled(track, score.cells):
        if cell.samples is None:
            return _Entrant(row["architecture"], score, {})
        numbers = seeds[cell.id, bool(row["published"])]
        sums.append({int(seed): part * float(value) for seed, value in zip(numbers, cell.samples, strict=True)})
    common = set.intersection(*map(set, sums))
    return _Entrant(row["architecture"], score, {seed: sum(one[seed] for one in sums) / len(score.cells)
                                                 for seed in common})  # fmt: skip


def history_table(history: Sequence[FirstPlace]) -> tuple[list[str], list[list[str]]]:
    """Headers and rows, the newest holder of each place first."""
    headers = ["track", "task", "first", "since", "score", "over", "by", "p"]
    order = {one.place: number for number, one in reversed(list(enumerate(history)))}
    newest = sorted(enumerate(history), key=lambda pair: (order[pair[1].place], -pair[0]))
    return headers, [
        [one.track, one.task, one.architecture, one.since, f"{one.score:.3f}", one.over or "-",
         "-" if one.by is None else f"{one.by:+.3f}", "-" if one.p is None else f"{one.p:.2g}"]
        for _, one in newest
    ]  # fmt: skip
