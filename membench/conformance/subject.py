"""The subject of the checks: an architecture with a config, on facts that are small and have odd dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from membench.engine.workbench import build_model
from membench.errors import UsageError, place
from membench.interface.declarations import Architecture
from membench.interface.facts import Facts, Shape
from membench.interface.origin import HERE
from membench.interface.registry import Plugin, Registry, is_target
from membench.measure.evaluate import check_logits, logits_of

# Three different numbers, so that no two dimensions can be confused; the later ones are for those that take no other.
SHAPES = (Shape(11, 3, 7), Shape(11, 2, 7), Shape(11, 2, 11), Shape(11, 3, 11))
FACTS = 24


@dataclass(frozen=True)
class Subject:
    """What is checked. Everything that a check changes, it builds anew."""

    registry: Registry
    name: str  # as it was asked for: of an architecture, or path.py:Class
    architecture: Architecture[Any]
    config: Any
    shape: Shape

    @classmethod
    def of(cls, registry: Registry, name: str, architecture: Architecture[Any], config: Any) -> Subject:
        return cls(registry, name, architecture, config, _fitting_shape(architecture, config))

    @property
    def declared(self) -> bool:
        """Whether a plugin declares it; a plain class says nothing of ranges, and may import torch."""
        return not is_target(self.name) and self.architecture.origin.distribution != HERE

    @property
    def plugin(self) -> Plugin:
        return next(
            one for one in self.registry.plugins if self.architecture.name in {a.name for a in one.architectures}
        )

    def place(self, error: BaseException) -> str:
        return place(error, self.registry.files_of(self.architecture.name))

    def build(self, seed: int = 0, config: Any = None, dtype: str = "float32") -> nn.Module:
        return build_model(self.architecture, self.shape, self.config if config is None else config, seed, dtype)

    def facts(self) -> Facts:
        """Some contexts with random answers; every token occurs."""
        every = list(itertools.product(range(self.shape.vocab), repeat=self.shape.length))
        rng = np.random.default_rng(0)
        diagonal = [(token,) * self.shape.length for token in range(self.shape.vocab)]
        others = [context for context in every if len(set(context)) > 1]
        drawn = rng.choice(len(others), size=FACTS - len(diagonal), replace=False)
        inputs = np.array([*diagonal, *(others[i] for i in drawn)], dtype=np.int64)
        labels = rng.integers(self.shape.answers, size=FACTS, dtype=np.int64)
        return Facts(inputs, labels, np.full(FACTS, 1 / FACTS), self.shape.vocab, self.shape.answers)

    def tokens(self) -> Tensor:
        return torch.from_numpy(self.facts().inputs)

    def ask(self, module: nn.Module, tokens: Tensor, training: bool = False) -> Tensor:
        """Logits as they are when a model is measured, or while it trains. Raises InvalidOutput."""
        module.train(training)
        with torch.no_grad():
            return check_logits(module(tokens), len(tokens), self.shape.answers).detach()

    def train(self, module: nn.Module, steps: int = 3) -> None:
        """A few steps of Adam, in the plain way."""
        facts = self.facts()
        tokens, labels = torch.from_numpy(facts.inputs), torch.from_numpy(facts.targets)
        trained = [p for p in module.parameters() if p.requires_grad]
        if not trained:
            return
        optimiser = torch.optim.Adam(trained, lr=0.02)
        module.train()
        with seeded(1):
            for _ in range(steps):
                optimiser.zero_grad()
                nn.functional.cross_entropy(logits_of(module(tokens)), labels).backward()
                optimiser.step()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's generator at a seed, and afterwards as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _fitting_shape(architecture: Architecture[Any], config: Any) -> Shape:
    """The first that the architecture takes; UsageError when it takes none."""
    reasons = []
    for shape in SHAPES:
        try:
            if architecture.check:
                architecture.check(shape, config)
            return shape
        except ValueError as error:
            reasons.append(str(error))
    raise UsageError(f"{architecture.name} takes none of the shapes that it would be checked with: {reasons[0]}")
