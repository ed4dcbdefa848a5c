"""What is missing on the board, and what it would take: the places of all tracks that nobody has filled yet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from membench.capacity_search.subject import Subject
from membench.engine.protocols.protocol import get_protocol
from membench.errors import UsageError, unknown
from membench.interface.declarations import Architecture
from membench.interface.options import assignments, expand
from membench.interface.registry import Registry
from membench.plan.budget import Budget, CannotBeBuilt, DoesNotFit, measure
from membench.plan.request import check_fit
from membench.plan.trial import Trial
from membench.records.record import Record
from membench_leaderboard.tracks import LEVELS, RESOLUTION, SEEDS, TRACKS, TRAINING, Track, TrackTask, size_name

Known = Mapping[tuple[str, int], Record]  # finished trials, by id and seed

# CPU seconds of a seed for each fact and parameter, as long as an architecture has no records of its own; what a fact
# costs beside its products with parameters is as much as so many more of them. From aot, hashed-ngram and hopfield with
# 500 to 4,000 parameters on 1,291 facts.
WITH_KERNEL, WITHOUT = 3e-7, 8e-7
BESIDE_PARAMETERS = 2000
EASY_LOAD, EASY = 0.7, 0.15  # below this load training soon ends with everything right
SEARCHED_VALUES = 6  # numbers of facts that a search tries, usually
SEARCHED_LOAD = 1.5  # of them, in the middle


@dataclass(frozen=True)
class Place:
    """One size of one architecture on one task of a track."""

    track: Track
    task: TrackTask
    size: int
    architecture: Architecture[Any]
    trials: Sequence[Trial]  # one for each seed; of a search, with any number of facts
    parameters: int

    @property
    def words(self) -> str:
        return f"{self.architecture.name} on {self.task.name}, {size_name(self.size)}"

    def missing(self, known: Known) -> list[Trial]:
        """The trials to run next; none when the place is filled."""
        wanted = self._searched(known) if self.track.searched else self.trials
        return [trial for trial in wanted if (trial.id, trial.seed) not in known]

    def _searched(self, known: Known) -> list[Trial]:
        done = [self._subject.measurement(known[trial.id, trial.seed], trial) for trial in self._tried(known)]
        values = self._subject.search(LEVELS, RESOLUTION, None).next_values(done)
        return [trial for value in values for trial in self._subject.at(value)]

    def _tried(self, known: Known) -> list[Trial]:
        """The trials of this search that are known. A value counts once all of its seeds have been run."""
        values = sorted({record.task["config"]["T0"] for record in known.values() if self._is_mine(record)})
        rounds = [self._subject.at(value) for value in values]
        return [trial for some in rounds if all((one.id, one.seed) in known for one in some) for trial in some]

    def _is_mine(self, record: Record) -> bool:
        asked = (record.architecture["name"], record.task["name"])
        return asked == (self.architecture.name, self.task.task)

    @cached_property
    def _subject(self) -> Subject:
        return Subject(self.trials, "T0")

    def seconds(self, known: Known, rates: Rates) -> float:
        """CPU seconds until the place is filled, about."""
        return sum(rates.seconds(self, trial, facts_of(trial)) for trial in self._until_filled(known))

    def step_seconds(self, known: Known, rates: Rates) -> float:
        """The same for what is next of it."""
        return sum(rates.seconds(self, trial, facts_of(trial)) for trial in self.missing(known))

    def _until_filled(self, known: Known) -> list[Trial]:
        following = self.missing(known)
        if not self.track.searched or not following:
            return following
        tried = len({trial.task_config for trial in self._tried(known)})
        more = max(0, SEARCHED_VALUES - tried - len({trial.task_config for trial in following}))
        return [*following, *more * self._subject.at(self._typical)]

    @property
    def _typical(self) -> int:
        shape = self._subject.shape
        facts = SEARCHED_LOAD * self.parameters / math.log2(shape.answers)
        return max(1, min(round(facts), int(shape.vocab**shape.length)))


def facts_of(trial: Trial) -> int:
    """How many facts it is about; 0 of a task that does not say."""
    return trial.task.contexts(trial.task_config) if trial.task.contexts else 0


@dataclass
class Rates:
    """What a seed takes for each fact and parameter, learned from the records that there are.

    All time by all work, because in small trials most of the time is not spent on training.
    """

    taken: dict[str, float] = field(default_factory=dict)  # CPU seconds
    done: dict[str, float] = field(default_factory=dict)  # facts times parameters

    def learn(self, records: Iterable[Record]) -> None:
        for record in records:
            facts, parameters, seconds = record.task.get("contexts"), record.size.get("parameters"), _seconds(record)
            if facts and parameters and seconds and (record.protocol["name"], record.protocol.get("label")) == TRAINING:
                name = str(record.architecture["name"])
                self.taken[name] = self.taken.get(name, 0.0) + seconds
                self.done[name] = self.done.get(name, 0.0) + _work(facts, parameters, record.task.get("answers") or 2)

    def seconds(self, place: Place, trial: Trial, facts: int) -> float:
        if not trial.protocol.trains:
            return 1.0
        answers = trial.task.shape(trial.task_config).answers
        name, default = place.architecture.name, WITH_KERNEL if place.architecture.kernel else WITHOUT
        rate = self.taken[name] / self.done[name] if name in self.done else default
        return rate * _work(facts, place.parameters, answers)


def _work(facts: int, parameters: int, answers: int) -> float:
    load = facts * math.log2(answers) / parameters
    return facts * (parameters + BESIDE_PARAMETERS) * (EASY if load < EASY_LOAD else 1.0)


def _seconds(record: Record) -> float:
    """CPU seconds, with a share of the probes. Older records have the time of a clock instead."""
    seconds = record.run.get("cpu_seconds", record.run.get("seconds"))
    probes = record.run.get("probe_cpu_seconds", 0.0)
    numbers = isinstance(seconds, (int, float)) and isinstance(probes, (int, float))
    return seconds + probes / len(SEEDS) if numbers else 0.0


def chosen_tracks(names: Sequence[str]) -> list[Track]:
    """Those of these names; all without any. UsageError for a name that is none."""
    for name in names:
        if name not in TRACKS:
            raise unknown("track", name, TRACKS, f"there are: {', '.join(TRACKS)}")
    return [TRACKS[name] for name in names] or list(TRACKS.values())


def places(
    registry: Registry, architectures: Sequence[Architecture[Any]], tracks: Sequence[Track]
) -> tuple[list[Place], list[str]]:
    """All places that can be filled; and for each architecture and task the sizes that it cannot reach, with a reason.

    An architecture without constructions is no part of that track.
    """
    found: list[Place] = []
    reasons: dict[str, tuple[list[str], str]] = {}
    for track, architecture in itertools.product(tracks, architectures):
        if not get_protocol(track.protocol).trains and not architecture.constructions:
            continue
        for task, number in itertools.product(track.tasks, range(len(track.sizes))):
            try:
                found.append(_place(registry, track, task, architecture, number))
            except (DoesNotFit, CannotBeBuilt, UsageError) as error:
                who = f"{track.name}: {architecture.name} on {task.name}"
                reasons.setdefault(who, ([], str(error)))[0].append(size_name(track.sizes[number]))
    return found, [f"{who}, {', '.join(sizes)}: {reason}" for who, (sizes, reason) in reasons.items()]


def _place(registry: Registry, track: Track, one: TrackTask, architecture: Architecture[Any], number: int) -> Place:
    task, protocol, size = registry.task(one.task), get_protocol(track.protocol), track.sizes[number]
    (task_config,) = expand(task.config, assignments(one.config.split()), task.name, "")
    setting: Any
    (setting,) = expand(protocol.config, assignments(track.protocol_config.split()), protocol.name, "")
    shape = task.shape(task_config)
    config = Budget(size).config(architecture, shape)
    parameters = measure(architecture, config, shape, "all")
    below = track.sizes[number - 1] if number else 0
    if parameters <= below:
        raise DoesNotFit(f"it has no model of more than {below:,} and at most {size:,} parameters")
    trial = Trial(architecture, config, task, task_config, protocol, setting, SEEDS[0])
    check_fit([trial])
    return Place(track, one, size, architecture, [trial.with_seed(seed) for seed in SEEDS], parameters)
