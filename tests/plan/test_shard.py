from __future__ import annotations

import pytest

from membench.engine.execution import Execution
from membench.errors import UsageError
from membench.execute.job import make_jobs
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.plan.shard import Shard

REQUEST = Request(["aot"], ["bigram"], model_options=["H=1:13"], task_options=["N=10"], seeds=(0, 1, 2, 3, 4))


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_the_shards_are_the_grid_and_no_two_have_a_trial_in_common(count: int) -> None:
    trials = plan(Registry(), REQUEST)
    parts = [Shard(number, count).of(trials) for number in range(1, count + 1)]
    assert sorted((trial.id, trial.seed) for part in parts for trial in part) == sorted(
        (trial.id, trial.seed) for trial in trials
    )
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= len(REQUEST.seeds)


def test_what_trains_together_is_the_same_with_and_without_shards() -> None:
    trials = plan(Registry(), REQUEST)
    whole = {(job.point, job.seeds) for job in make_jobs(trials, Selection(), Execution())}
    parts = [make_jobs(Shard(number, 4).of(trials), Selection(), Execution()) for number in range(1, 5)]
    assert {(job.point, job.seeds) for part in parts for job in part} == whole


def test_the_order_of_the_grid_does_not_decide_the_parts() -> None:
    trials = plan(Registry(), REQUEST)
    there, back = Shard(2, 3).of(trials), Shard(2, 3).of(trials[::-1])
    assert there == back[::-1]


@pytest.mark.parametrize("text", ["0/10", "11/10", "x/y", "3", "3/0", "-1/5", "1/5/7", "1.0/2", "", "1 / 2", "9" * 30])
def test_what_is_no_shard_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--shard .*such as 3/100: from 1/100 to 100/100$"):
        Shard.parse(text)
