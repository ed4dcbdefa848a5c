"""Training a submitted point again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from samples import make_record

from membench.engine.execution import Execution
from membench.execute.driver import Watcher, execute
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.records.record import Record
from membench.records.store import Store, read
from membench.verify.retrain import Repeat, consistent, least_expected, plan_repeats, repeat, unforeseen_seed
from membench.verify.verdict import FAILED, UNCHECKED, VERIFIED, Verdict


def seeds(*accuracies: float) -> list[Record]:
    return [
        make_record(seed=seed, metrics={"accuracy": accuracy, "bits": 100.0})
        for seed, accuracy in enumerate(accuracies)
    ]


def test_a_new_seed_may_fall_short_by_a_prediction_interval() -> None:
    # the 99 % point of Student's t with two degrees of freedom is 6.965
    assert least_expected([0.4, 0.5, 0.6]) == pytest.approx(0.5 - 6.965 * 0.1 * (4 / 3) ** 0.5, abs=1e-4)
    assert least_expected([0.9, 0.9, 0.9]) == pytest.approx(0.891)


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        ({"accuracy": 0.9, "bits": 100.0}, VERIFIED),
        ({"accuracy": 1.0, "bits": 400.0}, VERIFIED),  # better is not suspicious
        ({"accuracy": 0.3, "bits": 100.0}, FAILED),
        ({"accuracy": 0.9, "bits": 80.0}, FAILED),
        ({"accuracy": None, "bits": 100.0}, UNCHECKED),
    ],
)
def test_only_a_worse_result_is_inconsistent(found: dict[str, float | None], outcome: str) -> None:
    assert consistent(seeds(0.89, 0.9, 0.91), found)[0] == outcome


def test_one_seed_tells_nothing_of_the_spread() -> None:
    assert consistent(seeds(0.9), {"accuracy": 0.1, "bits": 1.0})[0] == UNCHECKED


def test_the_seed_follows_from_records_and_salt_and_is_new() -> None:
    digests = ["one", "two"]
    seed = unforeseen_seed(digests, set(), "salt")
    assert seed == unforeseen_seed(digests[::-1], set(), "salt")
    assert seed != unforeseen_seed(digests, set(), "other salt")
    assert seed != unforeseen_seed(["one", "edited"], set(), "salt")
    assert unforeseen_seed(digests, {seed, seed + 1}, "salt") == seed + 2


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    """Two seeds of one point, as if they had been verified."""
    registry = Registry()
    request = Request(["lookup"], ["bigram"], task_options=["N=5"], protocol="quick", seeds=(0, 1))
    trials = plan(registry, request)
    store = Store(tmp_path_factory.mktemp("submitted"))
    execute(trials, store, registry, Execution(jobs=2, keep_weights=True))
    paths = [store.path(trial) for trial in trials]
    return [Verdict(p, VERIFIED, entry=read(p)) for p in paths]


def aged(record: Record) -> Record:
    return replace(record, protocol={**record.protocol, "version": 99})


def again(verdicts: list[Verdict]) -> Repeat:
    registry = Registry()
    (one,) = repeat(plan_repeats(verdicts, registry, "salt"), registry, Execution(jobs=1), 300, Watcher())
    return one


def test_a_point_is_trained_verified_and_compared(submitted: list[Verdict]) -> None:
    found = again(submitted)
    assert (found.outcome, found.reason) == (VERIFIED, "")
    assert found.seed not in (0, 1)
    assert found.found["accuracy"] == 1
    assert found.as_json()["seeds"] == [0, 1]


def test_what_cannot_be_trained_here_says_so(submitted: list[Verdict]) -> None:
    older = [replace(one, entry=replace(one.entry, record=aged(one.entry.record))) for one in submitted if one.entry]
    (planned,) = plan_repeats(older, Registry(), "salt")
    assert planned.trial is None
    assert "version 99 of protocol quick" in planned.reason
    assert plan_repeats([replace(verdict, outcome=FAILED) for verdict in submitted], Registry(), "salt") == []
