"""The standings of a track: a score for each architecture and task, and a rank over the tasks.

A score is a mean over the sizes of the track. A size that was not run is a gap: there the next smaller model counts,
since it fits too, and what the gap could add at most is said apart. So a score follows from an architecture's own rows
and from nobody else's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import geometric_mean
from typing import Any, cast

import numpy as np
import pandas as pd

from membench.analysis.intervals import Numbers, combined_interval, mean_interval
from membench.capacity_search.measurement import Measurement
from membench.capacity_search.threshold import Threshold, peak, threshold
from membench.measure.size import COUNTS
from membench_leaderboard.columns import COSTS
from membench_leaderboard.rows import TABLE, Row, origin, shared_ranks, verification
from membench_leaderboard.tracks import LEVELS, TRACKS, Track, TrackTask

COST_KEYS = (*(count.field for count in COUNTS.values()), *(column.key for column in COSTS))
WITHIN = (1.1, 2.0)  # factors at which the performance profile is shown
LEAST = 0.01  # what a task counts as that was not run, or whose score is lower still


@dataclass(frozen=True)
class Held:
    """The facts that a model holds, beside what limits and what guarantees it."""

    per_parameter: float
    low: float  # of the 95 % interval
    high: float
    of_limit: float  # part of the facts that the bits of its parameters could tell apart
    times_proven: float  # facts, as a multiple of what is proven for this model; NaN where nothing is


@dataclass(frozen=True)
class Cell:
    """What an architecture reached at one size of a track."""

    value: float
    low: float  # of the 95 % interval
    high: float
    parameters: float
    id: str  # of the best model; of a search, of its largest number of facts
    config: str
    costs: Mapping[str, float]  # parameters in each way to count them, and the columns of COSTS
    held: Held | None = None  # None where facts are distributions, of which none is either held or not
    samples: Numbers | None = None  # the value of each seed, where seeds have one
    more: Mapping[str, Any] | None = None  # of a search: what else it found


@dataclass(frozen=True)
class Score:
    """The mean over the sizes of a track."""

    value: float
    low: float  # of the 95 % interval over seeds
    high: float
    at_most: float  # if every gap were as good as it can be; infinite where nothing limits it
    cells: Sequence[Cell | None]  # one for each size; None is a gap

    @property
    def gaps(self) -> int:
        return sum(cell is None for cell in self.cells)


def standings(track: Track, rows: Iterable[Row]) -> list[Row]:
    """The architectures of a track, best first; what was published is apart from what was not."""
    mine = [row for row in rows if track.trains(row)]
    by_task = {task.name: _ranked(_scores(track, task, mine)) for task in track.tasks}
    entrants = sorted({key for scores in by_task.values() for key in scores})
    found = [_standing(key, by_task, len(entrants), mine) for key in entrants]
    found.sort(key=lambda one: (-one["level"], one["architecture"], one["published"]))
    places = [one["level"] for one in found]
    return [{"rank": places.index(place) + 1, "tied": places.count(place) > 1, **one}
            for place, one in zip(places, found, strict=True)]  # fmt: skip


Key = tuple[str, bool]


def said_of(scores: Iterable[Score]) -> dict[str, float]:
    """What a row says at once: the most facts per parameter of its models, how near that is to what is possible and to
    what is proven, and what one seed of all of them cost.
    """
    cells = [cell for score in scores for cell in score.cells if cell]
    held = max((cell.held for cell in cells if cell.held), key=lambda one: one.per_parameter, default=None)
    nothing = Held(math.nan, math.nan, math.nan, math.nan, math.nan)
    return {
        **{f"facts_{key}": value for key, value in asdict(held or nothing).items()},
        "cpu_seconds": sum(cell.costs["cpu_seconds"] for cell in cells),
    }


def _standing(key: Key, by_task: Mapping[str, Mapping[Key, Row]], last: int, rows: Sequence[Row]) -> Row:
    """One architecture over all tasks. It is ranked by its own scores alone, so that nobody else's change its place
    before a third: their geometric mean, which orders as the area over the whole performance profile does.
    """
    own = [max(LEAST, scores[key]["score"].value if key in scores else 0.0) for scores in by_task.values()]
    best = [max((LEAST, *(one["score"].value for one in scores.values()))) for scores in by_task.values()]
    factors = [one / other for one, other in zip(best, own, strict=True)]
    own_rows = [row for row in rows if (row["architecture"], row["published"]) == key]
    return {
        "architecture": key[0],
        "published": key[1],
        "level": geometric_mean(own),
        "factor": geometric_mean(factors),
        "profile": {f"{most:g}": sum(factor <= most for factor in factors) / len(factors) for most in WITHIN},
        "mean_rank": sum(scores[key]["rank"] if key in scores else last for scores in by_task.values()) / len(by_task),
        "tasks": {name: scores.get(key) for name, scores in by_task.items()},
        **said_of(scores[key]["score"] for scores in by_task.values() if key in scores),
        "origin": origin(own_rows[0]["protocol"]),
        "verification": verification(own_rows),
        "membench": ", ".join(sorted({row["membench"] for row in own_rows})),
    }


def _ranked(scores: dict[Key, Score]) -> dict[Key, Row]:
    """Best first; those whose intervals overlap share a rank with the best of them."""
    order = sorted(scores, key=lambda key: (-scores[key].value, key))
    value, low, high = (np.array([getattr(scores[key], end) for key in order]) for end in ("value", "low", "high"))
    ranks, tied = shared_ranks(value, low, high)
    return {key: {"score": scores[key], "rank": rank, "tied": tie}
            for key, rank, tie in zip(order, ranks, tied, strict=True)}  # fmt: skip


def _scores(track: Track, task: TrackTask, rows: Iterable[Row]) -> dict[Key, Score]:
    """Of all architectures that have run at least one size of a task."""
    found: dict[Key, list[Row]] = {}
    for row in rows:
        if task.asks(row, track.searched):
            found.setdefault((row["architecture"], bool(row["published"])), []).append(row)
    cells = {key: _cells(track, some) for key, some in found.items()}
    return {key: _score(track, some) for key, some in cells.items() if any(some)}


def _cells(track: Track, rows: Sequence[Row]) -> list[Cell | None]:
    """The best model of each size."""
    best: list[Cell | None] = [None] * len(track.sizes)
    for cell in _searches(rows) if track.searched else map(CELLS[track.score], rows):
        slot = None if cell is None else track.slot(cell.parameters)
        if cell is None or slot is None or math.isnan(cell.value):
            continue
        before = best[slot]
        if before is None or (cell.value, cell.id) > (before.value, before.id):
            best[slot] = cell
    return best


def _accuracy(row: Row) -> Cell:
    facts = [_facts_held(row, row[key]) for key in ("accuracy", "low", "high")]
    return Cell(row["accuracy"], row["low"], row["high"], row["parameters"], row["id"], row["config"],
                _costs(row), _held(row, *facts), row["accuracies"])  # fmt: skip


def _facts_held(row: Row, accuracy: float) -> float:
    """The associations of an accuracy."""
    return float(row["contexts"] * (accuracy - row["chance"]) / (1 - row["chance"]))


def _held(row: Row, facts: float, low: float, high: float) -> Held:
    bits, proven = -math.log2(row["chance"]), row["associations"] / row["ratio_to_bound"]
    size = row["parameters"]
    return Held(facts / size, low / size, high / size, facts * bits / row["learned_bits"], facts / proven)


def _costs(row: Row) -> dict[str, float]:
    return {key: float(row[key]) for key in COST_KEYS}


def _share(row: Row) -> Cell:
    """Of the divergence of a uniform guess, what is gone. A model that is worse than the guess knows nothing."""
    known = row["bits"] * math.log(2) / row["contexts"]  # the divergence that it has taken away
    uniform = row["kl"] + known
    samples = np.maximum(0.0, 1 - row["divergences"] / uniform) if uniform > 0 else np.full(1, math.nan)
    low, high = mean_interval(samples, ceiling=1.0)
    more = {"kl": row["kl"], "excess_kl": row["excess_kl"]}
    return Cell(float(samples.mean()), low, high, row["parameters"], row["id"], row["config"], _costs(row),
                samples=samples, more=more)  # fmt: skip


CELLS = {"accuracy": _accuracy, "share": _share}


def _searches(rows: Iterable[Row]) -> Iterator[Cell | None]:
    """One for each model: its rows are trials with more and more facts."""
    models: dict[str, list[Row]] = {}
    for row in rows:
        models.setdefault(row["config"], []).append(row)
    for config, some in models.items():
        yield _search(config, some)


def _search(config: str, rows: Sequence[Row]) -> Cell | None:
    """None where even the fewest facts were too many, or a search has not found yet what is too much."""
    done = [
        Measurement(
            int(row["contexts"]), seed, int(row["contexts"]), row["load"], float(accuracy), row["bits_per_parameter"]
        )
        for row in rows
        for seed, accuracy in enumerate(row["accuracies"])
    ]
    whole, nearly = (threshold(done, LEVELS, level) for level in LEVELS)
    top = peak(done)
    largest = max(rows, key=lambda row: float(row["contexts"]))
    unfinished = nearly.status == "at least" and largest["contexts"] < largest["all_contexts"]
    if nearly.status == "below" or unfinished or top is None:
        return None
    more = {"all_right": _load(whole), "peak": top.bits, "status": nearly.status, "facts": nearly.facts}
    costs = {**_costs(largest), "cpu_seconds": sum(row["cpu_seconds"] for row in rows)}  # of the whole search
    held = _held(largest, nearly.facts, nearly.low, nearly.high)
    return Cell(nearly.load, nearly.load_low, nearly.load_high, largest["parameters"], largest["id"], config, costs,
                held, more=more)  # fmt: skip


def _load(one: Threshold) -> float | None:
    return None if one.status == "below" else one.load


def _score(track: Track, cells: Sequence[Cell | None]) -> Score:
    shown = filled(track, cells)
    weight = 1 / len(cells)
    value = weight * sum(part * cell.value for part, cell in shown)
    low, high = _interval([(weight * part, cell) for part, cell in shown])
    at_most = weight * sum(_most(track, cells, number) for number in range(len(cells)))
    return Score(value, low, high, max(value, at_most), cells)


def filled(track: Track, cells: Sequence[Cell | None]) -> list[tuple[float, Cell]]:
    """What counts at each size, and how much of it: the best of all models that fit.

    An accuracy is that of the smaller model. Bits per parameter are fewer by as much as the size is larger.
    """
    found: list[tuple[float, Cell]] = []
    best: tuple[float, Cell] | None = None
    for number, cell in enumerate(cells):
        if best and track.searched:
            best = best[0] * track.sizes[number - 1] / track.sizes[number], best[1]
        if cell and (track.searched or not best or cell.value > best[1].value):
            best = 1.0, cell
        if best:
            found.append(best)
    return found


def _most(track: Track, cells: Sequence[Cell | None], number: int) -> float:
    """What a size could add at most: a gap is no better than the next larger model."""
    later = [(size, cell) for size, cell in zip(track.sizes, cells, strict=True)][number:]
    for size, cell in later:
        if cell:
            held = cell.value * (size / track.sizes[number] if track.searched else 1)
            earlier = [one.value for one in cells[:number] if one and not track.searched]
            return max(held, *earlier) if earlier else held
    return math.inf if track.searched else 1.0


def _interval(parts: Sequence[tuple[float, Cell]]) -> tuple[float, float]:
    """Of a weighted sum. A seed stands for the same facts at every size, so that each has a sum of its own."""
    samples = [cell.samples for _, cell in parts if cell.samples is not None]
    weights = [weight for weight, _ in parts]
    if len(samples) == len(parts):
        if len({len(one) for one in samples}) == 1:
            return mean_interval(np.array(weights) @ np.stack(samples))
        return combined_interval(weights, samples)
    value = sum(weight * cell.value for weight, cell in parts)
    below = [weight * (cell.value - cell.low) for weight, cell in parts]
    above = [weight * (cell.high - cell.value) for weight, cell in parts]
    return value - math.hypot(*below), value + math.hypot(*above)  # searches are independent of each other


def track_rows(rows: pd.DataFrame) -> list[tuple[Track, list[Row]]]:
    """The standings of each track that has any, over the tasks that a row is about: others may not have been chosen."""
    mine = rows[np.array([bool(asked) for asked in _tracks_of(rows)], bool)]
    plain = cast("list[Row]", mine.to_dict("records"))
    found = ((track, standings(track, plain)) for track in map(_with_tasks_of(mine), TRACKS.values()))
    return [(track, some) for track, some in found if some]


def _with_tasks_of(rows: pd.DataFrame) -> Callable[[Track], Track]:
    tables = _tables_of(rows)

    def chosen(track: Track) -> Track:
        own = [table for table in tables if track.trains(table)]
        tasks = [task for task in track.tasks if any(task.asks(table, track.searched) for table in own)]
        return replace(track, tasks=tasks)

    return chosen


def _tables_of(rows: pd.DataFrame) -> list[Row]:
    """What the rows of each table have in common."""
    return cast("list[Row]", rows[TABLE].drop_duplicates().to_dict("records"))


def asked_with(rows: pd.DataFrame, chosen: Collection[str]) -> pd.DataFrame:
    """The rows that are compared with the chosen ids: all of a track that asks for one, and all of its table."""
    tables = _tables_of(rows[rows["id"].isin(chosen)])
    tracks = {track.name for table in tables for track in tracks_asking(table)}
    keys = {tuple(table[key] for key in TABLE) for table in tables}
    every = zip(rows[TABLE].itertuples(index=False), _tracks_of(rows), strict=True)
    return rows[[tuple(key) in keys or any(one.name in tracks for one in asked) for key, asked in every]]


def without_probes(rows: pd.DataFrame) -> pd.DataFrame:
    """Without what is only there for a search: a table for each number of facts would tell nobody anything."""
    kept = [not asked or not all(track.searched for track in asked) for asked in _tracks_of(rows)]
    return rows[np.array(kept, bool)]


def outside_tracks(rows: pd.DataFrame) -> pd.DataFrame:
    """What no track asks for. These tables have scores of their own, over whichever sizes were run."""
    return rows[np.array([not asked for asked in _tracks_of(rows)], bool)]


def _tracks_of(rows: pd.DataFrame) -> list[tuple[Track, ...]]:
    """The tracks that each row is part of; rows of one table are part of the same."""
    keys = [tuple(key) for key in rows[TABLE].itertuples(index=False)]
    found = {key: tracks_asking(dict(zip(TABLE, key, strict=True))) for key in dict.fromkeys(keys)}
    return [found[key] for key in keys]


def tracks_asking(row: Mapping[str, Any]) -> tuple[Track, ...]:
    """Those that a table, or a row of it, is part of."""
    return tuple(
        track
        for track in TRACKS.values()
        if track.trains(row) and any(task.asks(row, track.searched) for task in track.tasks)
    )
