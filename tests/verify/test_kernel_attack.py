"""A plugin's kernel, which is given the answers and may return any weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from membench.engine.execution import Execution
from membench.execute.driver import execute
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.records.store import Store, read
from membench.verify.retrain import plan_repeats, repeat
from membench.verify.verdict import FAILED, VERIFIED, verify
from membench_leaderboard.frame import to_frame
from membench_leaderboard.rows import summarise

PLUGIN = """
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from membench.api import Architecture, hookimpl
from membench.kernels import Progress

PER = 8  # labels of three bits in the 24 of a float


@dataclass(frozen=True)
class Config:
    pass


class Packed(nn.Module):
    def __init__(self, shape, config):
        super().__init__()
        self.N = shape.vocab
        self.p = nn.Parameter(torch.zeros(-(-self.N**2 // PER)))

    def forward(self, tokens):
        place = tokens[:, 0] * self.N + tokens[:, 1]
        labels = (self.p.detach().to(torch.int64)[place // PER] >> (3 * (place % PER))) & 7
        return 20.0 * nn.functional.one_hot(labels.clamp(0, self.N - 1), self.N) + 0 * self.p.sum()


class Kernel:
    def __init__(self, modules, facts, betas):
        self.modules, self.facts = modules, facts

    def advance(self, rates, *given, **more):
        return Progress(np.zeros(rates.shape, np.float32), np.ones(rates.shape, np.float32))

    def state(self, replica):
        words, N = [0] * len(self.modules[replica].p), self.modules[replica].N
        for (a, b), label in zip(self.facts[replica].inputs.tolist(), self.facts[replica].targets.tolist()):
            words[(a * N + b) // PER] |= label << (3 * ((a * N + b) % PER))
        return {"p": torch.tensor([float(word) for word in words])}


@hookimpl
def membench_architectures():
    return [
        Architecture(name="packed", summary="", reference="", config=Config, build=Packed, kernel=Kernel),
    ]
"""


def test_packed_labels_are_priced_and_do_not_survive_training(tmp_path: Path) -> None:
    (tmp_path / "packed.py").write_text(PLUGIN, encoding="utf-8")
    selection = Selection(files=(str(tmp_path / "packed.py"),))
    registry, store = Registry(selection), Store(tmp_path / "out")
    request = Request(["packed"], ["bigram"], [], ["N=6"], "quick", ["steps=20"], tuple(range(5)))
    trials = plan(registry, request)
    records = execute(trials, store, registry, Execution(executor="inline", keep_weights=True))
    assert [record.trace["paths"] for record in records] == [["kernel"]] * 5
    assert set(summarise(to_frame(records))["origin"]) == {"trained by a plugin's kernel"}
    (one,) = verify([store.path(trials[0])], selection, jobs=1)
    assert one.outcome == VERIFIED, one.reason
    assert one.size["learned_bits"] == 5 * 32  # for 93 bits of labels
    assert "its plugin has a kernel, which is given the answers" in one.notes[0]
    entries = [read(store.path(trial)) for trial in trials]
    verdicts = [replace(one, path=Path(e.source), entry=e, metrics=e.record.metrics) for e in entries]
    inline = Execution(executor="inline")  # in the process that trains again, which is another one anyway
    (again,) = repeat(plan_repeats(verdicts, "salt", Registry()), selection, inline, 300, show=False)
    assert again.outcome == FAILED
    assert "accuracy is" in again.reason


def test_labels_that_fill_more_than_half_of_the_weights_were_packed(tmp_path: Path) -> None:
    (tmp_path / "packed.py").write_text(PLUGIN, encoding="utf-8")
    selection = Selection(files=(str(tmp_path / "packed.py"),))
    registry, store = Registry(selection), Store(tmp_path / "out")
    (trial,) = plan(registry, Request(["packed"], ["bigram"], [], ["N=8"], "quick", ["steps=20"], (0,)))
    execute([trial], store, registry, Execution(executor="inline", keep_weights=True))
    (one,) = verify([store.path(trial)], selection, jobs=1)
    assert (one.outcome, one.metrics["accuracy"], one.size["learned_bits"]) == (FAILED, 1.0, 8 * 32)
    assert "bits is 192, more than half of the 256 bits that its parameters are stored in" in one.reason
