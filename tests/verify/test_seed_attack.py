"""A plugin that listens to how its facts are drawn, keeps their seed in its weights, and draws them again when asked.

Its code knows no fact and its parameters are more than the facts take, so that no limit is broken; on new seeds, and on
other configs of the task, it does as well. Facts that no seed gives are what it cannot answer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from membench.engine.execution import Execution
from membench.execute.driver import execute
from membench.interface import facts as drawing
from membench.interface.facts import Facts, draw_facts
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.records.store import Store, read
from membench.verify.retrain import plan_repeats, repeat
from membench.verify.secret_answers import draw_turns, turned
from membench.verify.verdict import FAILED, VERIFIED, verify

PLUGIN = """
from dataclasses import dataclass

import torch
from torch import nn

from membench.api import Architecture, hookimpl
from membench.interface import facts as drawing

drawn = []
generator = drawing.generator


def listening(seed, stream):
    drawn.append(seed)
    return generator(seed, stream)


drawing.generator = listening


@dataclass(frozen=True)
class Config:
    pass


class Remembers(nn.Module):
    def __init__(self, shape, config):
        super().__init__()
        self.N = shape.vocab
        seed = drawn[-1] if drawn else 0  # the initial weights are drawn last, just before a model is built
        self.seed = nn.Parameter(torch.tensor([float(seed >> 16), float(seed & 65535)]))
        self.idle = nn.Parameter(torch.zeros(40))

    def forward(self, tokens):
        from membench_tasks.bigram import BIGRAM

        nothing = 0 * (self.seed.sum() + self.idle.sum())
        if torch.is_grad_enabled():
            return nothing.expand(len(tokens), self.N)
        high, low = self.seed.round().to(torch.int64).tolist()
        facts = drawing.draw_facts(BIGRAM, BIGRAM.config(N=self.N), (high << 16) + low)
        table = torch.zeros(self.N, self.N, dtype=torch.int64)
        table[tuple(torch.from_numpy(facts.inputs).T)] = torch.from_numpy(facts.targets)
        return 20.0 * nn.functional.one_hot(table[tokens[:, 0], tokens[:, 1]], self.N) + nothing


@hookimpl
def membench_architectures():
    return [Architecture(name="remembers", summary="x", reference="x", config=Config, build=Remembers)]
"""


def test_a_seed_in_idle_weights_does_not_answer_facts_that_no_seed_gives(tmp_path: Path) -> None:
    (tmp_path / "attack.py").write_text(PLUGIN, encoding="utf-8")
    selection, store = Selection(files=(str(tmp_path / "attack.py"),)), Store(tmp_path / "out")
    genuine = drawing.generator
    try:
        registry = Registry(selection)
        trials = plan(registry, Request(["remembers"], ["bigram"], [], ["N=6"], "quick", ["steps=2"], tuple(range(5))))
        execute(trials, store, registry, Execution(executor="inline", keep_weights=True))
    finally:
        drawing.generator = genuine
    (one,) = verify([store.path(trials[0])], selection, jobs=1)
    assert (one.outcome, one.metrics["accuracy"]) == (VERIFIED, 1.0), one.reason
    entries = [read(store.path(trial)) for trial in trials]
    verdicts = [replace(one, path=Path(e.source), entry=e, metrics=e.record.metrics) for e in entries]
    inline = Execution(executor="inline")
    (again,) = repeat(plan_repeats(verdicts, "salt", Registry()), selection, inline, 300, show=False)
    assert [found["accuracy"] for found in again.found] == [1.0] * 3  # new seeds alone do not find it
    assert again.outcome == FAILED
    assert "a config that the salt drew" in again.reason


def _facts(task: str) -> Facts:
    known = Registry().task(task)
    return draw_facts(known, known.config(N=6), 1)


def test_turned_facts_are_as_hard_and_others() -> None:
    for task in ("bigram", "low-entropy", "almost-low-rank"):
        facts = _facts(task)
        other = turned(task, facts, draw_turns(len(facts)))
        assert (other.inputs is facts.inputs, other.shape) == (True, facts.shape)
        assert (other.targets != facts.targets).any()
        assert abs(np.sort(other.entropies()) - np.sort(facts.entropies())).max() < 1e-12
        assert turned(task, facts, draw_turns(len(facts))).sha256() != other.sha256()
    assert turned(task, facts, b"") is facts
    ranks = [np.linalg.matrix_rank(np.log(one.targets), tol=1.0) for one in (facts, other)]
    assert ranks[0] == ranks[1] < 6  # answers that depend on each other still do
