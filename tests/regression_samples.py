"""What a maintainer would have: an architecture as a plugin file, and a suite that watches it."""

from __future__ import annotations

PLUGIN = """
from dataclasses import dataclass
from membench.api import Architecture, hookimpl

LOSS = False


@dataclass(frozen=True)
class Config:
    pass


def build(shape, config):
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Embedding(shape.vocab, 8)
            self.last = nn.Embedding(shape.vocab, 8)
            self.out = nn.Linear(8, shape.vocab)

        def forward(self, tokens):
            return self.out(self.first(tokens[:, 0]) + self.last(tokens[:, 1])) * (0 if LOSS else 1)

    return Model()


@hookimpl
def membench_architectures():
    return [Architecture(name="mine", summary="mine", reference="none", config=Config, build=build)]
"""
SUITE = """
name = "tiny"
version = 1
seeds = 8

[[trial]]
model = "mine"
task = "bigram"
protocol = "quick"
watch = { accuracy = 0.02 }
T = { N = 4 }
P = { steps = 20 }
"""
