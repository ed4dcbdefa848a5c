from __future__ import annotations

from dataclasses import replace

import pytest

from membench.errors import UsageError
from membench.interface.registry import Registry
from membench.plan.groups import groups
from membench.plan.request import Request, plan
from membench.plan.shard import Shard
from membench.plan.trial import Point, Trial

REQUEST = Request(["aot"], ["bigram"], model_options=["H=1:13"], task_options=["N=10"], seeds=(0, 1, 2, 3, 4))


def groups_of(part: list[Trial], trials: list[Trial]) -> list[tuple[Point, tuple[int, ...]]]:
    """The groups of a grid that a part has the first seed of."""
    there = {(trial.point, trial.seed) for trial in part}
    return [(point, seeds) for point, seeds in groups(trials) if (point, seeds[0]) in there]


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_the_shards_are_the_grid_and_no_two_have_a_trial_in_common(count: int) -> None:
    trials = plan(Registry(), REQUEST)
    parts = [Shard(number, count).of(trials) for number in range(1, count + 1)]
    assert sorted((trial.id, trial.seed) for part in parts for trial in part) == sorted(
        (trial.id, trial.seed) for trial in trials
    )
    sizes = [len(groups_of(part, trials)) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_a_part_has_whole_groups_of_seeds() -> None:
    trials = plan(Registry(), REQUEST)
    for number in range(1, 8):
        part = Shard(number, 7).of(trials)
        whole = {(point.id, seed) for point, seeds in groups_of(part, trials) for seed in seeds}
        assert whole == {(trial.id, trial.seed) for trial in part}


def test_few_points_with_many_seeds_keep_many_parts_busy() -> None:
    trials = plan(Registry(), replace(REQUEST, model_options=["H=1,2"], seeds=tuple(range(50))))
    assert [len(Shard(number, 20).of(trials)) for number in range(1, 21)] == [5] * 20


def test_the_order_of_the_grid_does_not_decide_the_parts() -> None:
    trials = plan(Registry(), REQUEST)
    there, back = Shard(2, 3).of(trials), Shard(2, 3).of(trials[::-1])
    assert there == back[::-1]


@pytest.mark.parametrize("text", ["0/10", "11/10", "x/y", "3", "3/0", "-1/5", "1/5/7", "1.0/2", "", "1 / 2", "9" * 30])
def test_what_is_no_shard_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--shard .*such as 3/100: from 1/100 to 100/100$"):
        Shard.parse(text)
