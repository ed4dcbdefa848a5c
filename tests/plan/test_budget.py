"""Budgets: each architecture's config for a number of parameters."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import pytest

from membench.api import Architecture, BudgetTooSmall, Shape, option
from membench.errors import UsageError
from membench.interface.options import options_of
from membench.interface.registry import Registry
from membench.measure.size import COUNTS, Count, Size, measure_size
from membench.plan import budget
from membench.plan.budget import Budget, DoesNotFit, largest_value, measure, parse_budget
from membench.plan.request import Request, plan

REGISTRY = Registry()
SHAPE = Shape(30, 2, 30)


@pytest.mark.parametrize(("text", "size"), [("3k", 3000), ("10000", 10000), ("1.5M", 1_500_000), (" 0.5k ", 500)])
def test_a_budget_is_a_number_with_or_without_a_letter(text: str, size: int) -> None:
    assert parse_budget(text) == size


@pytest.mark.parametrize("text", ["", "-3k", "0", "1.2345k", "10g", "k"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="such as 3k, 10000"):
        parse_budget(text)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", ["aot", "mlp-transformer", "attention-mlp", "linear-memory"])
def test_the_model_stays_within_the_budget_and_uses_most_of_it(name: str, count: str) -> None:
    architecture = REGISTRY.architecture(name)
    config = Budget(5000, count).config(architecture, SHAPE)
    assert 4500 <= measure(architecture, config, SHAPE, count) <= 5000


@dataclass(frozen=True)
class Config:
    depth: int = option(2, help="layers", minimum=1, maximum=3)
    width: int = option(4, help="width", minimum=1)


@dataclass(frozen=True)
class WideConfig:
    width: int = option(4, help="width", minimum=1, maximum=100)


def build(shape: Shape, config: Config) -> Any:
    from torch import nn

    layers = [nn.Linear(config.width, config.width, bias=False) for _ in range(config.depth)]
    return nn.Sequential(nn.Embedding(shape.vocab, config.width), *layers)


PLAIN = Architecture(name="plain", summary="-", reference="-", config=Config, build=build)


def test_without_a_choice_of_its_own_the_largest_model_is_searched() -> None:
    config = Budget(3000).config(PLAIN, SHAPE)
    assert config == Config(depth=2, width=31)  # 30 * 31 + 2 * 31^2 = 2852, and a width of 32 would be 3008


@dataclass(frozen=True)
class DeepConfig:
    layers: int = option(1, help="layers", minimum=1)


def test_a_search_builds_nothing_much_larger_than_what_fits() -> None:
    built = []

    def count_layers(shape: Shape, config: DeepConfig) -> Any:
        from torch import nn

        built.append(config.layers)
        return nn.Sequential(*(nn.Linear(10, 10, bias=False) for _ in range(config.layers)))

    deep = Architecture(name="deep", summary="-", reference="-", config=DeepConfig, build=count_layers)
    assert Budget(3000).config(deep, SHAPE) == DeepConfig(layers=30)
    assert max(built) < 2 * 31
    built.clear()
    with pytest.raises(DoesNotFit, match=r"for at most 10,000,000 parameters stopped at layers=\d+, where deep has .*"):
        Budget(10_000_000).config(deep, SHAPE)
    assert max(built) < 2 * budget.MAX_PARTS


@pytest.mark.parametrize("first", [1, 3, 8, 50, 200])
@pytest.mark.parametrize(("largest", "found"), [(0, None), (1, 1), (37, 37), (99, 99), (5000, 100)])
def test_the_largest_value_is_found_from_wherever_the_search_starts(
    first: int, largest: int, found: int | None
) -> None:
    (width,) = options_of(WideConfig).values()
    tried = []

    def fits(value: int) -> bool:
        tried.append(value)
        return value <= largest

    assert largest_value(width, fits, first) == found
    assert max(tried) <= max(2 * largest, min(first, 100))
    assert min(tried) >= 1


def test_a_budget_is_said_and_searched_in_whichever_way_its_parameters_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A way to count that is neither of ours: half of the parameters, rounded up."""

    class Half(Size):
        @property
        def half(self) -> int:
            return -(-self.parameters // 2)

    monkeypatch.setitem(COUNTS, "half", Count("half", "half", "half", "halves of parameters"))
    monkeypatch.setattr(budget, "measure_size", lambda *given, **more: Half(**asdict(measure_size(*given, **more))))
    architecture = REGISTRY.architecture("aot")
    config = Budget(2500, "half").config(architecture, SHAPE)
    assert 4500 <= measure(architecture, config, SHAPE, "all") <= 5000
    assert str(Budget(2500, "half")) == "at most 2,500 halves of parameters"
    assert str(Budget(2500, "without-embeddings")) == "at most 2,500 parameters without embeddings"


def test_a_budget_that_nothing_fits_is_said() -> None:
    with pytest.raises(DoesNotFit, match="plain has no config with at most 20 parameters"):
        Budget(20).config(PLAIN, SHAPE)
    with pytest.raises(UsageError, match=r"no architecture fits the budget: .*too small for aot"):
        plan(REGISTRY, Request(["aot"], ["bigram"], budgets=[Budget(20)]))


def test_those_that_do_not_fit_are_left_out_with_a_reason_and_equal_configs_run_once() -> None:
    reasons: list[str] = []
    budgets = [Budget(3000), Budget(3001)]
    trials = plan(
        REGISTRY, Request(["linear-memory", "lookup"], ["bigram"], seeds=[0], budgets=budgets), reasons.append
    )
    assert [(trial.architecture.name, trial.config.d) for trial in trials] == [("linear-memory", 54)]
    assert len(reasons) == 2
    assert "lookup" in reasons[0]


def test_a_budget_and_model_options_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="leave out -M H=3"):
        plan(REGISTRY, Request(["aot"], ["bigram"], model_options=["H=3"], budgets=[Budget(3000)]))


def _too_small(shape: Shape, parameters: int) -> Config:
    raise BudgetTooSmall(5_000)


def _raise(shape: Shape, parameters: int) -> Config:
    raise ZeroDivisionError("of a budget")


@pytest.mark.parametrize(
    ("choose", "words"),
    [
        (lambda shape, parameters: Config(depth=2, width=100), "a config with 23,000 parameters for a budget of 3,000"),
        (lambda shape, parameters: None, "for_budget of plain returned a NoneType, not a Config"),
        (
            _too_small,
            "a budget of 3000 parameters is too small for plain: with N=30, S=2 and A=30 it needs",
        ),
        (_raise, "for_budget of plain failed: ZeroDivisionError: of a budget"),
    ],
)
def test_a_choice_that_is_none_is_said_and_stops_nobody_else(choose: Any, words: str) -> None:
    registry = Registry()
    registry.add(replace(PLAIN, for_budget=choose))
    reasons: list[str] = []
    request = Request(["plain", "linear-memory"], ["bigram"], (), ["N=30"], seeds=[0], budgets=[Budget(3000)])
    trials = plan(registry, request, reasons.append)
    assert [trial.architecture.name for trial in trials] == ["linear-memory"]
    assert words in reasons[0]
