"""What `membench board fill` does: what is missing on the board is run, the cheapest first, within a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from membench.engine.execution import Execution
from membench.errors import NotApplicable, UsageError
from membench.execute.run import Run
from membench.interface.registry import Registry
from membench.plan.trial import Trial
from membench.records.record import Record
from membench.records.store import Store
from membench.verbs.arguments import say

if TYPE_CHECKING:
    from membench_leaderboard.missing import Place


@dataclass(frozen=True)
class Left:
    """What is missing on one track for one architecture, and what it would take."""

    track: str
    architecture: str
    places: int
    seconds: float  # of one core


@dataclass(frozen=True)
class Filling:
    """What was done, and what is left to do."""

    ran: int  # trials
    failed: int
    left: Sequence[Left]
    unreachable: Sequence[str]  # a sentence for each place that no model of its architecture is for

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.left)


def fill(
    registry: Registry,
    models: Sequence[str],
    tracks: Sequence[str],
    execution: Execution,
    out: Path,
    *,
    hours: float,
    published: bool = True,
    show: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Filling:
    """Run what is missing, cheapest first, until the time is used up. What is finished is found again the next time.

    A step is begun only if it is expected to end in time.
    """
    from membench_leaderboard.missing import Rates, chosen_tracks, places

    if not 0 <= hours < 10_000:
        raise UsageError(f"--hours {hours:g}: give a number of hours of at least 0")
    names = [name for name in models if name != "all"]
    architectures = [registry.architecture(name) for name in names] or list(registry.installed.values())
    every, unreachable = places(registry, architectures, chosen_tracks(tracks))
    store = Store(out)
    store.check()
    known = _known(store, published)
    rates = Rates()
    rates.learn(known.values())
    waiting = [place for place in every if place.missing(known)]
    say(_estimate(waiting, sum(place.seconds(known, rates) for place in waiting), execution.workers, hours))
    ends, ran, failed = clock() + 3600 * hours, 0, 0
    while waiting:
        place = min(waiting, key=lambda one: one.seconds(known, rates))
        if clock() + place.step_seconds(known, rates) / execution.workers > ends:
            break
        records = _carry_out(place, place.missing(known), store, registry, execution, show)
        done = [one for one in records if one.complete]
        known.update(((one.id, one.seed), one) for one in done)
        rates.learn(done)
        ran, failed = ran + len(records), failed + len(records) - len(done)
        if reason := _why_never(records):
            failed -= len(records)
            unreachable.append(f"{place.track.name}: {place.words}: {reason}")
        if len(done) < len(records) or not place.missing(known):  # what failed is not tried for ever
            waiting.remove(place)
    pending = [place for place in every if place.missing(known)]
    groups: dict[tuple[str, str], list[Place]] = {}
    for place in pending:
        groups.setdefault((place.track.name, place.architecture.name), []).append(place)
    left = [Left(*key, len(some), sum(one.seconds(known, rates) for one in some)) for key, some in groups.items()]
    return Filling(ran, failed, left, unreachable)


def _why_never(records: Sequence[Record]) -> str:
    """The reason, if no trial of a place can be: such as a construction that is for other facts."""
    errors = [str(one.error or "") for one in records if not one.complete]
    told = f"{NotApplicable.__name__}: "
    return errors[0].removeprefix(told) if errors and all(one.startswith(told) for one in errors) else ""


def _estimate(waiting: Sequence[Place], seconds: float, workers: int, hours: float) -> str:
    from membench.execute.estimate import duration

    cores = f"{workers} core{'' if workers == 1 else 's'}"
    return (
        f"{len(waiting)} places of the board are missing: about {duration(seconds / workers)} on {cores}; "
        f"--hours {hours:g} of it now, the cheapest first"
    )


def _known(store: Store, published: bool) -> dict[tuple[str, int], Record]:
    from membench_leaderboard.published import published_records

    records = [entry.record for entry in store.entries([], curves=False)]
    return {(one.id, one.seed): one for one in (*(published_records() if published else ()), *records) if one.complete}


def _carry_out(
    place: Place, trials: Sequence[Trial], store: Store, registry: Registry, execution: Execution, show: bool
) -> list[Record]:
    """With weights, because a board has verified rows; and with how its shape was chosen."""
    from membench_leaderboard.missing import facts_of

    floor = place.track.floor and place.architecture.bottleneck is not None
    run = Run.of(trials, store, registry, replace(execution, keep_weights=True, floor=floor))
    if show:
        say(f"{place.track.name}: {place.words}, {facts_of(trials[0])} facts")
    records = run.carry_out(show)
    shape = "for_budget" if place.architecture.for_budget else "largest"
    return [_stamped(store, trial, record, shape) for trial, record in zip(trials, records, strict=True)]


def _stamped(store: Store, trial: Trial, record: Record, shape: str) -> Record:
    """A tuned shape stays what it is; one that an architecture chose for a budget says so."""
    if not record.complete or "tuned" in record.run or record.run.get("shape") == shape:
        return record
    told = replace(record, run={**record.run, "shape": shape})
    store.write(trial, told)
    return told
