"""Space: the shapes of an architecture that use up a budget, each with another balance between its options."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from membench.errors import UsageError
from membench.interface.declarations import Architecture
from membench.interface.facts import Shape as TaskShape
from membench.interface.options import Option, label, options_of
from membench.plan.budget import MAX_OPTION_VALUE, Budget, CannotBeBuilt, DoesNotFit, largest_value, measure

RATIO = math.sqrt(2)  # of neighbours on the grid of a whole number
REACH = 4  # how many times as much or as little of an option as in the architecture's own choice is looked at
MAX_PLACES = 2_000  # of the grid that are looked at; of a larger grid, so many at random
CHANGES = 3  # other options that may have to change before an option shows that it changes the size
SMALLEST = 0.5  # share of the budget below which a shape wastes it


@dataclass(frozen=True)
class Candidate:
    """One shape: a config, and how many parameters it has."""

    config: Any
    parameters: int
    place: tuple[float, ...] = field(compare=False)  # coordinates, for distances

    @property
    def label(self) -> str:
        return label(self.config)


class Space:
    """All options that change the size of a model, on a grid; one of them is always filled up to the budget.

    That is the one whose steps add the fewest parameters, so that all shapes are nearly as large as each other.
    `fixed` are options that stay as they are.
    """

    def __init__(
        self, architecture: Architecture[Any], task_shape: TaskShape, budget: Budget, fixed: Mapping[str, Any]
    ) -> None:
        self.architecture, self.task_shape, self.budget, self.fixed = architecture, task_shape, budget, dict(fixed)
        self._known = options_of(architecture.config)
        self._sizes: dict[Any, float] = {}
        self._start = self._start_values()
        self.options = [one for one in self._known.values() if self._changes_size(one)]
        steps = {one.name: self._step(one) for one in self.options if one.kind is int}
        growing = [one for one in self.options if steps.get(one.name, 0) > 0]
        self.filled = min(growing, key=lambda one: steps[one.name], default=None)

    def candidates(self) -> list[Candidate]:
        """Every shape of the grid, beginning with the one next to where it starts. DoesNotFit when there is none."""
        start = self._config(self._start)
        configs = [start] if self._size(start) <= self.budget.parameters else []
        for values in self._places():
            configs += self._filled_up({**self._start, **values})
        if not configs:
            raise DoesNotFit(f"{self.architecture.name} has no config with {self.budget}")
        found = [Candidate(one, round(self._size(one)), self._place(one)) for one in dict.fromkeys(configs)]
        centre = self._place(start)
        return sorted(found, key=lambda one: (math.dist(one.place, centre), one.config != start))

    def _start_values(self) -> dict[str, Any]:
        """The architecture's own choice for the budget, else its defaults; and what is fixed.

        An option at its automatic value stays automatic, so that it follows when others change.
        """
        try:
            own = self.budget.config(self.architecture, self.task_shape)
        except (DoesNotFit, CannotBeBuilt):
            own = self._config({})
        if own is None:
            raise UsageError(f"{self.architecture.name} cannot be tuned: its options have no values to start from")
        values = {name: getattr(own, name) for name in self._known}
        for name, one in self._known.items():
            if one.automatic and self._made({**values, name: None}) == own:
                values[name] = None
        if self._config(values) is None:
            raise UsageError(f"{self.architecture.name} has no model with {_typed(self.fixed)} near {label(own)}")
        return values

    def _places(self) -> Iterator[dict[str, Any]]:
        """Values of all options but the one that is filled up."""
        varied = [one for one in self.options if one is not self.filled]
        grids = [self._grid(one) for one in varied]
        total = math.prod(map(len, grids))
        indices: Sequence[int] = range(total)
        if total > MAX_PLACES:
            indices = sorted(random.Random(0).sample(indices, MAX_PLACES))
        for index in indices:
            values = {}
            for option, grid in zip(varied, grids, strict=True):
                index, at = divmod(index, len(grid))
                values[option.name] = grid[at]
            yield values

    def _place(self, config: Any) -> tuple[float, ...]:
        """Whole numbers by their logarithm, since a doubling of one is as much as that of another, or as a switch."""
        varied = [one for one in self.options if one is not self.filled] or self.options
        values = [(one, getattr(config, one.name)) for one in varied]
        return tuple(
            math.log2(max(value, 0.5)) if one.kind is int else float((one.choices or (False, True)).index(value))
            for one, value in values
        )

    def _config(self, values: Mapping[str, Any]) -> Any:
        """With what is fixed. None where the architecture has no such model."""
        return self._made({**values, **self.fixed})

    def _made(self, values: Mapping[str, Any]) -> Any:
        try:
            config = self.architecture.config(**values)
            if self.architecture.check:
                self.architecture.check(self.task_shape, config)
        except (Exception, SystemExit):  # whatever a plugin may raise
            return None
        return config

    def _size(self, config: Any) -> float:
        """Infinite where there is no such model."""
        if config is None:
            return math.inf
        if config not in self._sizes:
            try:
                self._sizes[config] = measure(self.architecture, config, self.task_shape, self.budget.count)
            except CannotBeBuilt:
                self._sizes[config] = math.inf
        return self._sizes[config]

    def _fits(self, config: Any) -> bool:
        return SMALLEST * self.budget.parameters <= self._size(config) <= self.budget.parameters

    def _changes_size(self, option: Option) -> bool:
        """Seen at the start, or after a change of others: with d_h = d there is nothing to compress, for instance."""
        if option.name in self.fixed or option.kind is float or (option.kind is str and not option.choices):
            return False
        others = [one for one in self._known.values() if one.name not in (option.name, *self.fixed)]
        changes = [(one.name, value) for one in others for value in self._beside(one)]
        return any(
            self._differ({**self._start, **dict(some)}, option, value)
            for number in range(CHANGES + 1)
            for some in itertools.combinations(changes, number)
            for value in self._beside(option)
        )

    def _differ(self, start: Mapping[str, Any], option: Option, value: Any) -> bool:
        sizes = {self._size(self._config(values)) for values in (start, {**start, option.name: value})}
        return len(sizes) == 2 and math.isfinite(max(sizes))

    def _beside(self, option: Option) -> list[Any]:
        """Other values than the one that an option starts from."""
        value = self._value(option)
        if option.kind is bool:
            return [not value]
        if option.kind is int:
            return [one for one in (value + 1, value - 1) if option.allows(one)]
        return [one for one in option.choices if one != value]

    def _value(self, option: Option) -> Any:
        return getattr(self._config(self._start), option.name)

    def _step(self, option: Option) -> float:
        """Parameters that one more of an option adds at the start; 0 where there is no model with one more."""
        sizes = [self._size(self._config({**self._start, option.name: self._value(option) + by})) for by in (0, 1)]
        return sizes[1] - sizes[0] if all(map(math.isfinite, sizes)) else 0

    def _grid(self, option: Option) -> Sequence[Any]:
        if option.kind is bool:
            return (False, True)
        if option.choices:
            return option.choices
        auto = (None,) if option.automatic else ()
        return (*auto, *whole_numbers(option, self._value(option)))

    def _filled_up(self, values: dict[str, Any]) -> list[Any]:
        """The shapes at one place of the grid; a single one, unless there is nothing but what is filled up."""
        if self.filled is None:
            configs = [self._config(values)]
        else:
            largest = self._fill(values, self.filled)
            amounts = [] if largest is None else [largest]
            if largest and len(self.options) == 1:
                amounts += [value for value in whole_numbers(self.filled, largest) if value < largest]
            configs = [self._config({**values, self.filled.name: amount}) for amount in amounts]
        return [config for config in configs if self._fits(config)]

    def _fill(self, values: dict[str, Any], option: Option) -> int | None:
        """The largest value within the budget. Sizes grow evenly with most options, so that a guess is mostly right."""
        low, most = int(option.minimum or 1), int(min(option.maximum or MAX_OPTION_VALUE, MAX_OPTION_VALUE))

        def size(value: int) -> float:
            return self._size(self._config({**values, option.name: value}))

        def fits(value: int) -> bool:
            return size(value) <= self.budget.parameters

        step = size(low + 1) - size(low) if low < most else 0
        if not 0 < step < math.inf or not fits(low):
            return largest_value(option, fits, low)
        guess = int(min(low + (self.budget.parameters - size(low)) // step, most))
        if fits(guess) and (guess == most or not fits(guess + 1)):
            return guess
        return largest_value(option, fits, guess)


def whole_numbers(option: Option, around: int) -> list[int]:
    """Values at equal ratios, up to `REACH` times as small and as large as one of them, and the smallest there is."""
    steps = round(math.log(REACH, RATIO))
    values = {int(option.minimum or 1), *(round(around * RATIO**step) for step in range(-steps, steps + 1))}
    return sorted(value for value in values if option.allows(value) and value > 0)


def spread(candidates: Sequence[Candidate], number: int) -> list[Candidate]:
    """`number` of them: the first, then repeatedly the one that is furthest from all that were taken."""
    taken = [candidates[0]]
    distance = [math.dist(one.place, taken[0].place) for one in candidates]
    while len(taken) < number and max(distance) > 0:
        furthest = candidates[distance.index(max(distance))]
        taken.append(furthest)
        distance = [min(d, math.dist(one.place, furthest.place)) for d, one in zip(distance, candidates, strict=True)]
    return taken


def nearest(candidate: Candidate, candidates: Sequence[Candidate], number: int) -> list[Candidate]:
    """The `number` others that differ least."""
    others = [one for one in candidates if one != candidate]
    return sorted(others, key=lambda one: math.dist(candidate.place, one.place))[:number]


def _typed(values: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items()) or "its defaults"
