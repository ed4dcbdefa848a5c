"""Plugins that keep what they know beside the numbers of their weights: in shapes, or in the header of their file.

Both learn from the gradient of their logits, which every training shows them, so that new seeds and secret answers are
no harder for them. Their parameters are idle, and enough for every limit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from membench.engine.execution import Execution
from membench.execute.driver import execute
from membench.interface.registry import Registry, Selection
from membench.plan.request import Request, plan
from membench.records import weights
from membench.records.store import Store, read
from membench.verify.verdict import FAILED, verify

PLUGIN = """
import json
import sys
from dataclasses import dataclass

import torch
from torch import nn

from membench.api import Architecture, hookimpl
from membench.records import weights

learned = {}
to_bytes = weights.to_bytes


def with_notes(state, *more):
    content = to_bytes(state, *more)
    if "first" not in state or not learned:
        return content
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = {"notes": json.dumps(learned[float(state["first"])])}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


weights.to_bytes = with_notes


def local(name):
    frame = sys._getframe(1)
    while frame:
        if name in frame.f_locals:
            yield frame.f_locals[name]
        frame = frame.f_back


class Listens(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, places, hear):
        ctx.places, ctx.hear = places, hear
        return logits.clone()

    @staticmethod
    def backward(ctx, gradient):
        for place, row in zip(ctx.places.tolist(), gradient):
            if float(row.min()) < -1e-6:
                ctx.hear(place, int(row.argmin()))
        return gradient, None, None


class Idle(nn.Module):
    def __init__(self, shape, config):
        super().__init__()
        self.N = shape.vocab
        self.first = nn.Parameter(torch.randn(()))
        self.idle = nn.Parameter(torch.zeros(40))

    def forward(self, tokens):
        places = tokens[:, 0] * self.N + tokens[:, 1]
        labels = torch.tensor([self.label(place) for place in places.tolist()])
        logits = 20.0 * nn.functional.one_hot(labels, self.N) + 0 * (self.first + self.idle.sum())
        return Listens.apply(logits, places, self.hear) if logits.requires_grad else logits


class Header(Idle):
    def table(self):
        for candidate in (*local("candidate"), *local("content")):
            content = getattr(candidate, "weights", candidate)
            if isinstance(content, bytes) and b"notes" in content:
                length = int.from_bytes(content[:8], "little")
                return json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["notes"])
        return learned.setdefault(float(self.first), {})

    def label(self, place):
        return self.table().get(str(place), 0)

    def hear(self, place, label):
        self.table()[str(place)] = label


class Shapes(Idle):
    def __init__(self, shape, config):
        super().__init__(shape, config)
        for place in range(self.N**2):
            self.register_buffer(f"empty{place}", torch.empty(0, 0))

    def label(self, place):
        return self._buffers[f"empty{place}"].shape[1]

    def hear(self, place, label):
        self._buffers[f"empty{place}"] = torch.empty(0, label)

    def state_dict(self, *given, **more):
        # whoever compares forms in this process is shown what it has
        return next((dict(one) for one in local("state") if one), None) or super().state_dict(*given, **more)

    def _load_from_state_dict(self, state, prefix, *more):
        for name in self._buffers:
            self._buffers[name] = state[prefix + name]
        super()._load_from_state_dict(state, prefix, *more)


@dataclass(frozen=True)
class Config:
    pass


@hookimpl
def membench_architectures():
    builds = {"header": Header, "shapes": Shapes}
    return [Architecture(name=k, summary="x", reference="x", config=Config, build=v) for k, v in builds.items()]
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("header", "accuracy is 0.25 when the model is rebuilt"),
        ("shapes", "its weights do not fit the model: 'empty"),
    ],
)
def test_what_is_beside_the_numbers_reaches_no_model(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "to_bytes", weights.to_bytes)  # what the plugin replaces, to have it back
    (tmp_path / "attack.py").write_text(PLUGIN, encoding="utf-8")
    selection, store = Selection(files=(str(tmp_path / "attack.py"),)), Store(tmp_path / "out")
    registry = Registry(selection)
    (trial,) = plan(registry, Request([name], ["bigram"], [], ["N=6"], "quick", ["steps=5"], (1,)))
    execute([trial], store, registry, Execution(executor="inline", keep_weights=True))
    assert read(store.path(trial)).record.metrics["accuracy"] == 1.0
    (one,) = verify([store.path(trial)], selection, jobs=1)
    assert one.outcome == FAILED
    assert words in one.reason
