"""First places, confirmed: before one is published, a point that its score comes from is trained again.

Verified weights say what a model knows, and not how it came to know it: they may have been found in any way, under the
name of a protocol that does not find such weights.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd

from membench.engine.execution import Execution
from membench.errors import UsageError
from membench.interface.registry import Registry, Selection
from membench.records.store import Entry
from membench.verify.retrain import SUBMITTED, drawn, plan_repeats, repeat
from membench.verify.verdict import TIMEOUT, VERIFIED, Verdict
from membench_leaderboard.first_places import FirstPlace
from membench_leaderboard.rows import Row
from membench_leaderboard.track_scores import track_rows
from membench_leaderboard.tracks import LEVELS, TRACKS


def refuse_unconfirmed(places: Iterable[FirstPlace], rows: pd.DataFrame, entries: Sequence[Entry]) -> None:
    """UsageError for a first place that training again does not confirm.

    Chance draws one of the points that its score comes from, published before or not. Those of plugins were all
    trained again to be published.
    """
    selection = Selection().built_ins()
    built_ins = Registry(selection)
    for place in places:
        if place.architecture not in built_ins.architectures:
            continue
        behind = points_behind(place, rows)
        known = [_as_verified(one) for one in entries if one.record.id in behind]
        # A held-out config shows what code knows of facts. That of a built-in is ours, and at the threshold of a search
        # one seed on other facts is too few.
        salt = secrets.token_hex(8)
        planned = [replace(one, held_out=None) for one in plan_repeats(known, salt, built_ins)]
        told = f"the first place of {place.track}, {place.task} would go to {place.architecture}"
        if not all(one.seeds for one in planned):
            raise UsageError(f"{told}, which takes at least {SUBMITTED} seeds of each point")
        (one,) = repeat(drawn(planned, salt, 1), selection, Execution(), TIMEOUT, show=False)
        if one.outcome != VERIFIED:
            raise UsageError(f"{told}, and training point {one.id} again did not confirm it: {one.reason}")


def _as_verified(entry: Entry) -> Verdict:
    record = entry.record
    return Verdict(Path(entry.source), VERIFIED, entry=entry, metrics=record.metrics, size=record.size)


def points_behind(place: FirstPlace, rows: pd.DataFrame) -> set[str]:
    """Ids of the points that the score of a first place comes from, one for each size.

    Of a search, it is the most facts that a model still holds, which decide its score.
    """
    track = TRACKS[place.track]
    task = next(one for one in track.tasks if one.name == place.task)
    standings = next(some for one, some in track_rows(rows) if one.name == track.name)
    scored = next(one for one in standings if (one["architecture"], one["published"]) == (place.architecture, True))
    cells = [cell for cell in scored["tasks"][place.task]["score"].cells if cell]
    if not track.searched:
        return {cell.id for cell in cells}
    asked = (row for row in cast("list[Row]", rows.to_dict("records")) if track.trains(row) and task.asks(row, True))
    mine = [row for row in asked if row["architecture"] == place.architecture and _held(row)]
    of_models = [[row for row in mine if row["config"] == cell.config] for cell in cells]
    return {max(some, key=lambda row: float(row["contexts"]))["id"] for some in of_models if some}


def _held(row: Row) -> bool:
    """By half of the seeds, as a search has it."""
    return float(np.median(row["accuracies"])) >= LEVELS[-1]
