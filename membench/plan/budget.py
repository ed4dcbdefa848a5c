"""Budgets: the config with which an architecture best uses a number of parameters."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from membench.errors import BudgetTooSmall, UsageError, in_words
from membench.interface.declarations import Architecture
from membench.interface.facts import Shape
from membench.interface.options import Option, label, options_of, to_dict
from membench.measure.size import ALL, count_of, measure_size, widths_of

MAX_OPTION_VALUE = 1 << 20  # in a search
MAX_PARTS = 10_000  # modules and tensors of a model that a search may choose: one of so many takes a second to build


def parse_budget(text: str) -> int:
    """A number of parameters: 3k, 10000 or 1.5M."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmM]?)", text.strip())
    size = Decimal(found[1]) * {"": 1, "k": 1_000, "m": 1_000_000}[found[2].lower()] if found else Decimal(0)
    if size < 1 or size != int(size):
        raise UsageError(f"--budget {text}: give a number of parameters such as 3k, 10000 or 1.5M")
    return int(size)


class CannotBeBuilt(UsageError):
    """An architecture refuses a config only when it builds the model; the text says with which error."""


class DoesNotFit(Exception):
    """No config of the architecture is so small; the text says what it needs."""


@dataclass(frozen=True)
class Budget:
    """At most so many parameters, counted in one of the ways of COUNTS."""

    parameters: int
    count: str = ALL.word

    def __post_init__(self) -> None:
        count_of(self.count)  # UsageError now, and not in the middle of a search

    def config(self, architecture: Architecture[Any], shape: Shape) -> Any:
        """The architecture's own choice, or the largest of a small search. Raises DoesNotFit."""
        if architecture.for_budget is None:
            return _search(self, architecture, shape)
        choose = functools.partial(_own_choice, architecture)
        if self.count != ALL.word:
            return self._by_another_count(architecture, choose, shape)
        config = choose(shape, self.parameters)  # which counts all parameters
        if not architecture.origin.is_built_in:  # those of ours are tested
            self._check_size(architecture, config, shape)
        return config

    def _check_size(self, architecture: Architecture[Any], config: Any, shape: Shape) -> None:
        size = measure(architecture, config, shape, self.count)
        if size > self.parameters:
            raise DoesNotFit(
                f"for_budget of {architecture.name} returned a config with {size:,} parameters "
                f"for a budget of {self.parameters:,}"
            )

    def _by_another_count(
        self, architecture: Architecture[Any], choose: Callable[[Shape, int], Any], shape: Shape
    ) -> Any:
        """Its choice for the largest number of all parameters of which those that count stay within the budget.

        Found by bisection, for any way to count that leaves some of the parameters out.
        """
        low, high = self.parameters, 2 * self.parameters
        best = None
        for _ in range(40):
            try:
                config = choose(shape, high)
            except DoesNotFit:  # too few even for the smallest model
                low, high = high, 2 * high
                continue
            if self.parameters < measure(architecture, config, shape, self.count) or high > 64 * self.parameters:
                break
            best, low, high = config, high, 2 * high
        while high - low > max(1, self.parameters // 500):
            middle = (low + high) // 2
            try:
                config = choose(shape, middle)
            except DoesNotFit:
                low = middle
                continue
            if measure(architecture, config, shape, self.count) <= self.parameters:
                best, low = config, middle
            else:
                high = middle
        if best is None:
            raise DoesNotFit(f"{architecture.name} has no config with {self} on N={shape.vocab}, S={shape.length}")
        return best

    def __str__(self) -> str:
        return f"at most {self.parameters:,} {count_of(self.count).words}"


def _own_choice(architecture: Architecture[Any], shape: Shape, parameters: int) -> Any:
    """What `for_budget` of an architecture says. DoesNotFit, with its reason, whatever else it does."""
    assert architecture.for_budget is not None
    try:
        config = architecture.for_budget(shape, parameters)
    except BudgetTooSmall as error:
        raise DoesNotFit(
            f"a budget of {parameters} parameters is too small for {architecture.name}: with N={shape.vocab}, "
            f"S={shape.length} and A={shape.answers} it needs at least {error.least}"
        ) from None
    except ValueError as error:
        raise DoesNotFit(str(error)) from None
    except (Exception, SystemExit) as error:  # of a plugin
        raise DoesNotFit(f"for_budget of {architecture.name} failed: {in_words(error)}") from None
    if not isinstance(config, architecture.config):
        kind, wanted = type(config).__name__, architecture.config.__name__
        raise DoesNotFit(f"for_budget of {architecture.name} returned a {kind}, not a {wanted}")
    return config


def measure(architecture: Architecture[Any], config: Any, shape: Shape, count: str) -> int:
    """Parameters of the model, which is built without memory for its weights."""
    return _measured(architecture, config, shape, count).size


class _Measured(NamedTuple):
    config: Any
    size: int  # parameters that count
    parts: int  # modules and tensors: what building it costs


def _measured(architecture: Architecture[Any], config: Any, shape: Shape, count: str) -> _Measured:
    import torch

    try:
        with torch.device("meta"):
            module = architecture.build(shape, config)
            size = measure_size(module, shape, architecture.embeddings, widths=widths_of(to_dict(config)))
            parts = sum(1 for _ in module.modules()) + sum(1 for _ in module.parameters())
    except (Exception, SystemExit) as error:  # whatever a plugin may raise
        raise CannotBeBuilt(f"{architecture.name} cannot be built with {config}: {in_words(error)}") from None
    return _Measured(config, getattr(size, count_of(count).field), parts)


def _search(budget: Budget, architecture: Architecture[Any], shape: Shape) -> Any:
    """The largest model within the budget that a change of one whole-number option from the defaults leads to.

    Where that leaves a choice, the option that is declared first decides: usually the width. DoesNotFit where only
    models of more than `MAX_PARTS` parts would use the budget: that is an option such as `layers` alone.
    """
    defaults = _try(architecture, {})
    whole = [one for one in options_of(architecture.config).values() if one.kind is int]

    def within(config: Any) -> _Measured | None:
        if config is None:
            return None
        try:
            found = _measured(architecture, config, shape, budget.count)
        except CannotBeBuilt:
            return None
        return found if found.size <= budget.parameters else None

    def enlarged(option: Option) -> tuple[_Measured, bool] | None:
        """With the largest value that fits, and whether a larger one would if it had fewer parts."""

        def model(value: int) -> _Measured | None:
            return within(_try(architecture, {option.name: value}))

        def fits(value: int) -> bool:
            found = model(value)
            return found is not None and found.parts <= MAX_PARTS

        value = largest_value(option, fits, getattr(defaults, option.name, 1))
        if value is None:
            return None
        found, beyond = model(value), model(value + 1)
        return (found, beyond is not None and beyond.parts > MAX_PARTS) if found else None

    start = within(defaults)
    found = [(start, False)] if start else []
    found += [one for one in map(enlarged, whole) if one]
    if not found:
        if defaults is not None:
            measure(architecture, defaults, shape, budget.count)  # which says why, if nothing can be built at all
        raise DoesNotFit(f"{architecture.name} has no config with {budget} on N={shape.vocab}, S={shape.length}")
    best, stopped = max(found, key=lambda one: one[0].size)
    if stopped:
        raise DoesNotFit(
            f"the search for {budget} stopped at {label(best.config)}, where {architecture.name} has {best.size:,} in "
            f"{best.parts:,} modules and tensors; give it for_budget, or an option such as a width"
        )
    return best.config


def largest_value(option: Option, fits: Callable[[int], bool], first: int) -> int | None:
    """The largest value that fits, or None: by doubling from `first` and by bisection, so that none is tried that is
    much larger than one that fits.
    """
    low, most = int(option.minimum or 1), int(min(option.maximum or MAX_OPTION_VALUE, MAX_OPTION_VALUE))
    value = min(max(first, low, 1), most)
    good, bad = low - 1, most + 1
    while good < value < bad:
        if fits(value):
            good, value = value, min(2 * value, most)
        else:
            bad = value
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return None if good < low else good


def _try(architecture: Architecture[Any], values: dict[str, int]) -> Any:
    try:
        return architecture.config(**values)
    except (Exception, SystemExit):  # whatever a plugin may raise
        return None
