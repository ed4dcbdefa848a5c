"""Space: the shapes of an architecture that use up a budget, each with another balance between its options."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from membench.errors import UsageError
from membench.interface.declarations import Architecture
from membench.interface.facts import Shape
from membench.interface.options import Option, label, options_of
from membench.plan.budget import MAX_OPTION_VALUE, Budget, DoesNotFit, measure

RATIO = math.sqrt(2)  # of neighbours on the grid of a whole number
REACH = 4  # how many times as much or as little of an option as in the architecture's own choice is looked at
MAX_SHAPES = 2_000  # that are looked through, before some of them are trained
SMALLEST = 0.5  # share of the budget below which a shape is no use of it


@dataclass(frozen=True)
class Candidate:
    """One shape: a config, and how many parameters it has."""

    config: Any
    parameters: int
    place: tuple[float, ...] = field(compare=False)  # by which neighbours are known

    @property
    def label(self) -> str:
        return label(self.config)


class Space:
    """All options that change the size of a model, on a grid; one of them is always filled up to the budget.

    That is the one whose steps add the fewest parameters: so that every shape is as large as any other, nearly.
    `fixed` are options that are to stay as they are.
    """

    def __init__(self, architecture: Architecture[Any], shape: Shape, budget: Budget, fixed: Mapping[str, Any]) -> None:
        self.architecture, self.shape, self.budget, self.fixed = architecture, shape, budget, dict(fixed)
        self._sizes: dict[Any, int] = {}
        self.own_choice = self._own_choice()
        start = self.own_choice or self._config({})
        if start is None:
            raise UsageError(f"{architecture.name} has an option without a default; set it with -M")
        self._known = options_of(architecture.config)
        self._start = {name: getattr(start, name) for name in self._known}
        for name, one in self._known.items():  # what is as it would be anyway stays so when other options change
            if one.automatic and self._config({**self._start, name: None}) == start:
                self._start[name] = None
        self.options = [one for one in self._known.values() if self._changes_size(one)]
        self.filled = min((one for one in self.options if one.kind is int), key=self._step, default=None)

    def candidates(self) -> list[Candidate]:
        """Every shape of the grid, the architecture's own choice first. DoesNotFit when there is none."""
        others = [one for one in self.options if one is not self.filled]
        grid = itertools.product(*(self._grid(one) for one in others))
        configs = [self.own_choice] if self.own_choice is not None else []
        for values in itertools.islice(grid, MAX_SHAPES):
            configs += self._filled_up({**self._start, **dict(zip([one.name for one in others], values, strict=True))})
        if not configs:
            raise DoesNotFit(f"{self.architecture.name} has no config with {self.budget}")
        return [Candidate(config, self._size(config), self._place(config)) for config in dict.fromkeys(configs)]

    def _place(self, config: Any) -> tuple[float, ...]:
        """Whole numbers by their logarithm, since a doubling of one is as much as that of another, or as a switch."""
        varied = [one for one in self.options if one is not self.filled] or self.options
        values = [(one, getattr(config, one.name)) for one in varied]
        return tuple(
            math.log2(max(value, 0.5)) if one.kind is int else float((one.choices or (False, True)).index(value))
            for one, value in values
        )

    def _own_choice(self) -> Any:
        """What `for_budget` gives, or the search that stands in for it, if it leaves the fixed options as they are."""
        try:
            config = self.budget.config(self.architecture, self.shape)
        except DoesNotFit:
            return None
        agrees = all(getattr(config, name) == value for name, value in self.fixed.items())
        return config if agrees and self._size(config) <= self.budget.parameters else None

    def _config(self, values: Mapping[str, Any]) -> Any:
        """None where the architecture has no such model."""
        try:
            config = self.architecture.config(**{**values, **self.fixed})
            if self.architecture.check:
                self.architecture.check(self.shape, config)
        except (TypeError, ValueError):
            return None
        return config

    def _size(self, config: Any) -> int:
        if config not in self._sizes:
            self._sizes[config] = measure(self.architecture, config, self.shape, self.budget.count)
        return self._sizes[config]

    def _changes_size(self, option: Option) -> bool:
        """Seen at the start, or one step of another option away from it: with d_h = d there is nothing to compress."""
        if option.name in self.fixed or option.kind is float:
            return False
        others = [one for one in self._known.values() if one.kind is int and one.name not in (option.name, *self.fixed)]
        starts = [self._start, *({**self._start, one.name: value} for one in others for value in self._beside(one))]
        return any(self._differ(start, option, value) for start in starts for value in self._beside(option))

    def _differ(self, start: Mapping[str, Any], option: Option, value: Any) -> bool:
        before, after = self._config(start), self._config({**start, option.name: value})
        return before is not None and after is not None and self._size(before) != self._size(after)

    def _beside(self, option: Option) -> list[Any]:
        """Other values than the one that an option starts from."""
        value = self._value(option)
        if option.kind is bool:
            return [not value]
        return [value + 1, value - 1] if option.kind is int else [one for one in option.choices if one != value]

    def _value(self, option: Option) -> Any:
        return getattr(self._config(self._start), option.name)

    def _step(self, option: Option) -> int:
        """Parameters that one more of an option adds at the start."""
        before, after = self._config(self._start), self._config({**self._start, option.name: self._value(option) + 1})
        return self._size(after) - self._size(before) if after is not None else MAX_OPTION_VALUE

    def _grid(self, option: Option) -> Sequence[Any]:
        if option.kind is bool:
            return (False, True)
        if option.choices:
            return option.choices
        auto = (None,) if option.automatic else ()
        return (*auto, *whole_numbers(option, self._value(option)))

    def _filled_up(self, values: dict[str, Any]) -> Iterator[Any]:
        """The shapes at one place of the grid; a single one, unless there is nothing but what is filled up."""
        if self.filled is None:
            configs = [self._config(values)]
        else:
            largest = self._fill(values, self.filled)
            amounts = [] if largest is None else [largest]
            if largest and len(self.options) == 1:
                amounts += [value for value in whole_numbers(self.filled, largest) if value < largest]
            configs = [self._config({**values, self.filled.name: amount}) for amount in amounts]
        limits = SMALLEST * self.budget.parameters, self.budget.parameters
        yield from (one for one in configs if one is not None and limits[0] <= self._size(one) <= limits[1])

    def _fill(self, base: dict[str, Any], option: Option) -> int | None:
        """The largest value within the budget. Sizes grow evenly with most options, so that a guess is mostly right."""
        low, high = int(option.minimum or 0), int(min(option.maximum or MAX_OPTION_VALUE, MAX_OPTION_VALUE))

        def fits(value: int) -> bool:
            config = self._config({**base, option.name: value})
            return config is not None and self._size(config) <= self.budget.parameters

        if not fits(low):
            return None
        first, second = (self._config({**base, option.name: value}) for value in (low, low + 1))
        if second is not None and self._size(second) > self._size(first):
            guess = low + (self.budget.parameters - self._size(first)) // (self._size(second) - self._size(first))
            if guess <= high and fits(guess):
                low = guess
                high = min(high, guess + 1) if guess < high and not fits(guess + 1) else high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low


def whole_numbers(option: Option, around: int) -> list[int]:
    """Values of an option up to `REACH` times as small and as large as one of them, at equal ratios."""
    steps = round(math.log(REACH, RATIO))
    values = {round(around * RATIO**step) for step in range(-steps, steps + 1)}
    return sorted(value for value in values if option.allows(value) and value > 0)


def spread(candidates: Sequence[Candidate], number: int) -> list[Candidate]:
    """So many of them: the first one, and then always the one that is furthest from all that were taken."""
    taken = [candidates[0]]
    distance = [math.dist(one.place, taken[0].place) for one in candidates]
    while len(taken) < number and max(distance) > 0:
        furthest = candidates[distance.index(max(distance))]
        taken.append(furthest)
        distance = [min(d, math.dist(one.place, furthest.place)) for d, one in zip(distance, candidates, strict=True)]
    return taken


def nearest(candidate: Candidate, candidates: Sequence[Candidate], number: int) -> list[Candidate]:
    """So many others, beginning with those that differ least."""
    others = [one for one in candidates if one != candidate]
    return sorted(others, key=lambda one: math.dist(candidate.place, one.place))[:number]
