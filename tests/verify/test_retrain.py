"""Training a submitted point again."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from samples import make_record

from membench.engine.execution import Execution
from membench.execute.driver import execute
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.plan.trial import Trial
from membench.records.record import Record
from membench.records.store import Entry, Store, read
from membench.verify.retrain import (
    Repeat,
    _judged,
    _Trained,
    consistent,
    consistent_elsewhere,
    held_out,
    least_expected,
    plan_repeats,
    repeat,
    unforeseen_seeds,
)
from membench.verify.verdict import FAILED, UNCHECKED, VERIFIED, Verdict


def reached(*accuracies: float, bits: float = 100.0) -> list[dict[str, float]]:
    return [{"accuracy": accuracy, "bits": bits} for accuracy in accuracies]


SUBMITTED = reached(0.88, 0.89, 0.9, 0.91, 0.92)


def test_new_seeds_may_fall_short_by_a_two_sample_test() -> None:
    # pooled: (4 * 0.001 + 2 * 0.0004) / 6 = 0.0008; the 99 % point of Student's t with six degrees of freedom is 3.143
    submitted, new = [0.46, 0.48, 0.5, 0.52, 0.54], [0.48, 0.5, 0.52]
    assert least_expected(submitted, new) == pytest.approx(0.5 - 3.1427 * (0.0008 * 8 / 15) ** 0.5, abs=1e-4)
    assert least_expected([0.9] * 5, [0.9] * 3) == pytest.approx(0.891)


def test_no_spread_makes_everything_acceptable() -> None:
    assert least_expected([0.1, 0.2, 0.5, 0.8, 0.9], [0.0, 0.1, 0.9]) == pytest.approx(0.5 * 0.75)


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (reached(0.9, 0.89, 0.91), VERIFIED),
        (reached(1.0, 1.0, 1.0, bits=400.0), VERIFIED),  # better is not suspicious
        (reached(0.3, 0.31, 0.29), FAILED),
        (reached(0.9, 0.9, 0.9, bits=80.0), FAILED),
        ([{"bits": 100.0}] * 3, UNCHECKED),
    ],
)
def test_only_a_worse_result_is_inconsistent(found: list[dict[str, float]], outcome: str) -> None:
    assert consistent(SUBMITTED, found)[0] == outcome


def test_how_wrong_answers_of_a_formula_are_says_nothing() -> None:
    """Constructed weights may be off by any number of bits where they are wrong; what counts is what they get right."""
    formula = [{"accuracy": 0.5, "bits": bits} for bits in (-60e6, -61e6, -59e6, -60e6, -59.5e6)]
    again = [{"accuracy": 0.5, "bits": -80e6}] * 3
    assert consistent(formula, again)[0] == VERIFIED
    assert consistent(formula, [{"accuracy": 0.3, "bits": -80e6}] * 3)[0] == FAILED


def test_few_seeds_tell_too_little_of_the_spread() -> None:
    entries = [Entry(make_record(seed=seed), sha256=str(seed)) for seed in range(4)]
    (one,) = plan_repeats([Verdict(Path("x"), VERIFIED, entry=entry) for entry in entries], "salt", Registry())
    assert (one.outcome, one.seeds) == (UNCHECKED, ())
    assert "4 submitted seeds do not say how much seeds differ; at least 5 are needed" in one.reason


def test_the_seeds_follow_from_records_and_salt_and_are_new() -> None:
    digests = ["one", "two"]
    seeds = unforeseen_seeds(digests, set(), "salt")
    assert len(set(seeds)) == 4
    assert seeds == unforeseen_seeds(digests[::-1], set(), "salt")
    assert not set(seeds) & set(unforeseen_seeds(digests, set(), "other salt"))
    assert not set(seeds) & set(unforeseen_seeds(["one", "edited"], set(), "salt"))
    assert unforeseen_seeds(digests, {seeds[0], seeds[0] + 1}, "salt")[0] == seeds[0] + 2


@pytest.mark.parametrize(
    ("name", "task", "outcome"),
    [("theirs", "facts", UNCHECKED), ("aot", "facts", VERIFIED), ("theirs", "a plugin's", VERIFIED)],
)
def test_new_seeds_alone_do_not_confirm_a_plugin(name: str, task: str, outcome: str) -> None:
    """It could keep the seed of its facts in idle weights; a plugin's own task has no other answers at all."""
    given = {"name": task, "version": 1, "config": {"subjects": 32}}
    architecture = {"name": name, "config": {}}
    records = [make_record(seed=seed, architecture=architecture, task=given) for seed in range(5)]
    verdicts = [
        Verdict(Path("x"), VERIFIED, entry=Entry(one, sha256=str(one.seed)), metrics=one.metrics, size=one.size)
        for one in records
    ]
    (one,) = plan_repeats(verdicts, "salt", Registry(Selection().built_ins()))
    found = _judged(one, _Trained(), {(one.point, seed): verdicts[0] for seed in one.seeds})
    assert found.outcome == outcome
    assert ("a plugin could draw the facts again" in found.reason) is (outcome == UNCHECKED)


@pytest.mark.parametrize("options", ["N=50", "N=40 T0=300", "N=30 A=4", "N=20 zipf=1"])
def test_the_held_out_config_asks_the_same_of_fewer_tokens(options: str) -> None:
    registry = Registry()
    (trial,) = plan(registry, Request(["lookup"], ["bigram"], task_options=options.split(), seeds=(0,)))
    drawn = [one for seed in range(9) if (one := held_out(trial.point, seed, registry))]
    assert len({one.point for one in drawn}) > 2
    one = drawn[0]
    found, was = Trial.of(one.point, registry, one.seed).task_config, trial.task_config
    assert 0.75 * was.N < found.N < was.N
    assert abs(found.T0 - was.T0 * (found.N / was.N) ** 2) < 1
    assert (found.A, found.zipf) == (found.N if was.A == was.N else was.A, was.zipf)
    assert one.share == pytest.approx(found.T0 * math.log(found.A) / (was.T0 * math.log(was.A)))


def test_the_held_out_config_may_not_be_worse() -> None:
    (trial,) = plan(registry := Registry(), Request(["lookup"], ["bigram"], seeds=(0,)))
    elsewhere = held_out(trial.point, 7, registry)
    assert elsewhere
    outcomes = [
        consistent_elsewhere(SUBMITTED, replace(elsewhere, metrics={"accuracy": accuracy, "bits": bits}))[0]
        for accuracy, bits in ((0.9, 100.0), (1.0, 100.0 * elsewhere.share), (0.5, 100.0), (0.9, 50.0))
    ]
    assert outcomes == [VERIFIED, VERIFIED, FAILED, FAILED]


ONE_TRICK = '''
from dataclasses import dataclass
from membench.api import Architecture, hookimpl

@dataclass(frozen=True)
class Config:
    pass

def build(shape, config):
    """Memorises well where there are six tokens, and not at all elsewhere."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Parameter(torch.zeros(shape.vocab**2, shape.answers))

        def forward(self, tokens):
            return self.table[tokens[:, 0] * shape.vocab + tokens[:, 1]] * (shape.vocab == 6)

    return Model()

@hookimpl
def membench_architectures():
    return [Architecture(name="one-trick", summary="x", reference="x", config=Config, build=build)]
'''


def test_code_that_knows_the_published_config_is_found(tmp_path: Path) -> None:
    (tmp_path / "trick.py").write_text(ONE_TRICK)
    selection = Selection(files=(str(tmp_path / "trick.py"),))
    verdicts = trained(tmp_path / "records", "one-trick", "N=6", Registry(selection))
    found = again(verdicts, selection)
    assert found.outcome == FAILED
    assert re.search(r"with N=[45] T0=\d+ zipf=0, a config that the salt drew, below", found.reason)


def trained(folder: Path, model: str, options: str, registry: Registry) -> list[Verdict]:
    """Five seeds of one point, as if they had been verified."""
    request = Request([model], ["bigram"], task_options=[options], protocol="quick", seeds=tuple(range(5)))
    trials, store = plan(registry, request), Store(folder)
    execute(trials, store, registry, Execution(executor="inline", keep_weights=True))
    entries = [read(store.path(trial)) for trial in trials]
    return [Verdict(Path(e.source), VERIFIED, "", e, e.record.metrics, e.record.size) for e in entries]


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    return trained(tmp_path_factory.mktemp("submitted"), "lookup", "N=5", Registry())


def aged(record: Record) -> Record:
    return replace(record, protocol={**record.protocol, "version": 99})


def again(verdicts: list[Verdict], selection: Selection | None = None) -> Repeat:
    chosen = selection or Selection()
    inline = Execution(executor="inline")  # in the process that trains again, which is another one anyway
    (one,) = repeat(plan_repeats(verdicts, "salt", Registry()), chosen, inline, 300, show=False)
    return one


def test_a_point_is_trained_verified_and_compared(submitted: list[Verdict]) -> None:
    found = again(submitted)
    assert (found.outcome, found.reason) == (VERIFIED, "")
    assert not set(found.seeds) & set(range(5))
    assert found.means()["found"]["accuracy"] == 1
    assert found.as_json()["seeds"] == [0, 1, 2, 3, 4]


def test_a_model_of_another_size_is_another_model(submitted: list[Verdict]) -> None:
    smaller = [replace(one, size={**one.size, "parameters": 7}) for one in submitted]
    found = again(smaller)
    assert (found.outcome, found.reason) == (FAILED, "its seeds differ in size: 7, 125 parameters")


def test_what_cannot_be_trained_here_says_so(submitted: list[Verdict]) -> None:
    older = [replace(one, entry=replace(one.entry, record=aged(one.entry.record))) for one in submitted if one.entry]
    assert "version 99 of protocol quick" in again(older).reason
    assert plan_repeats([replace(verdict, outcome=FAILED) for verdict in submitted], "salt", Registry()) == []
