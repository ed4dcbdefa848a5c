"""Shapes that use up a budget: which options vary, and how they are filled up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from membench.api import Architecture, Shape, option
from membench.interface.options import options_of
from membench.interface.registry import Registry
from membench.plan.budget import Budget, DoesNotFit, measure
from membench.shape_search.space import SMALLEST, Space, nearest, spread, whole_numbers

REGISTRY = Registry()
SHAPE = Shape(30, 2, 30)


def space(name: str, parameters: int = 3000, **fixed: Any) -> Space:
    return Space(REGISTRY.architecture(name), SHAPE, Budget(parameters), fixed)


@pytest.mark.parametrize(
    ("name", "options", "filled"),
    [
        ("aot", {"d", "d_h", "H", "layers", "shared_projection", "one_projection"}, "d"),
        ("mlp-transformer", {"d", "w", "layers", "bias"}, "w"),
        ("attention-mlp", {"d", "w", "mask", "tied"}, "w"),
        ("linear-memory", {"d"}, "d"),
    ],
)
def test_the_options_that_change_the_size_vary_and_the_finest_is_filled_up(
    name: str, options: set[str], filled: str
) -> None:
    found = space(name)
    assert found.filled is not None
    assert ({one.name for one in found.options}, found.filled.name) == (options, filled)


@pytest.mark.parametrize("name", ["mlp-transformer", "attention-mlp", "linear-memory", "sequence-encoder"])
def test_every_shape_fits_and_none_is_there_twice(name: str) -> None:
    candidates = space(name).candidates()
    assert len({one.config for one in candidates}) == len(candidates)
    for one in candidates:
        assert one.parameters == measure(REGISTRY.architecture(name), one.config, SHAPE, "all")
        assert SMALLEST * 3000 <= one.parameters <= 3000


def test_a_filled_shape_has_no_room_for_one_more() -> None:
    architecture = REGISTRY.architecture("mlp-transformer")
    for one in space("mlp-transformer").candidates():
        larger = type(one.config)(**{**vars(one.config), "w": one.config.w + 1})
        assert measure(architecture, larger, SHAPE, "all") > 3000


def test_heads_may_be_smaller_than_the_stream_and_share_a_projection() -> None:
    configs = [one.config for one in space("aot", layers=1).candidates()]
    assert any(one.d_h < one.d and not one.shared_projection for one in configs)
    assert any(one.d_h < one.d and one.shared_projection for one in configs)
    assert {one.layers for one in configs} == {1}


def test_an_option_that_is_given_stays() -> None:
    configs = [one.config for one in space("mlp-transformer", d=5, bias=False).candidates()]
    assert {(one.d, one.bias) for one in configs} == {(5, False)}


def test_a_single_option_is_also_tried_at_less_than_the_budget() -> None:
    found = [one.config.d for one in space("sequence-encoder", 9 * 930).candidates()]
    assert found == [9, 6]  # the next one on the grid would be less than half of the budget


@dataclass(frozen=True)
class Steep:
    """An option whose size grows with its square, and one of which more makes the model smaller."""

    width: int = option(4, help="width", minimum=0, maximum=48)
    groups: int = option(1, help="parts that the width is divided into", minimum=1)


def steep(shape: Shape, config: Steep) -> Any:
    from torch import nn

    return nn.Conv1d(config.width, config.width, 1, groups=config.groups, bias=False)  # groups must divide the width


STEEP = Architecture(name="steep", summary="", reference="", config=Steep, build=steep)


def test_sizes_need_not_grow_evenly_and_maxima_are_kept() -> None:
    assert Space(STEEP, SHAPE, Budget(1000), {"groups": 1}).candidates()[0].config == Steep(width=31)
    found = Space(STEEP, SHAPE, Budget(2304), {"groups": 1})
    assert found.filled is not None
    assert found._fill({"groups": 1}, found.filled) == 48


def test_what_makes_a_model_smaller_is_not_filled_up_and_what_cannot_be_built_is_no_shape() -> None:
    found = Space(STEEP, SHAPE, Budget(1000), {})
    assert found.filled is not None
    assert found.filled.name == "width"
    assert all(one.config.width % one.config.groups == 0 for one in found.candidates())


def test_a_shape_near_what_was_given_comes_first() -> None:
    first = space("mlp-transformer", layers=2).candidates()[0].config
    own = Budget(3000).config(REGISTRY.architecture("mlp-transformer"), SHAPE)
    assert first.layers == 2
    assert own.d / 2 <= first.d <= own.d


def test_of_a_large_grid_a_sample_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = space("mlp-transformer").candidates()
    monkeypatch.setattr("membench.shape_search.space.MAX_PLACES", 20)
    some = space("mlp-transformer").candidates()
    assert len(some) < len(everything)
    assert {one.config for one in some} < {one.config for one in everything}
    assert len({one.config.d for one in some}) > 3


def test_what_is_too_large_at_its_smallest_does_not_fit() -> None:
    with pytest.raises(DoesNotFit, match="at most 100 parameters"):
        space("lookup", 100).candidates()


def test_spread_begins_with_the_first_and_ends_when_all_are_taken() -> None:
    candidates = space("mlp-transformer").candidates()
    taken = spread(candidates, 5)
    assert taken[0] == candidates[0]
    assert len(set(taken)) == 5
    assert len(spread(candidates, 10_000)) == len(candidates)


def test_the_nearest_shapes_are_a_step_away() -> None:
    candidates = space("mlp-transformer").candidates()
    own = candidates[0].config
    for one in nearest(candidates[0], candidates, 3):
        changed = [name for name in ("d", "layers", "bias") if getattr(one.config, name) != getattr(own, name)]
        assert len(changed) == 1


def test_whole_numbers_keep_to_what_an_option_allows() -> None:
    width = options_of(Steep)["width"]
    assert whole_numbers(width, 2) == [1, 2, 3, 4, 6, 8]
    assert max(whole_numbers(width, 40)) == 40
    assert whole_numbers(options_of(Steep)["groups"], 40)[:2] == [1, 10]
