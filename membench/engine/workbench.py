"""The workbench: what a protocol works with. It builds models, draws facts and makes trainers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from membench.engine.execution import Execution
from membench.engine.general import GeneralTrainer
from membench.engine.trainer import Trainer
from membench.errors import Impossible, NotApplicable
from membench.interface.declarations import Architecture, Task
from membench.interface.facts import Facts, Shape, draw_facts, weight_seed
from membench.measure.size import float_type

Report = Callable[[float, str], None]  # fraction done, and a few words


@dataclass
class Outcome:
    """What a protocol found for one seed: a model with its weights, and how it got there."""

    seed: int
    module: nn.Module
    facts: Facts
    least_loss: nn.Module | None = None  # for divergence and bits, where other weights hold most facts
    trace: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)  # beyond the exhaustive ones


@dataclass
class Workbench:
    """One architecture config on one task config, on one device."""

    architecture: Architecture[Any]
    config: Any
    task: Task[Any]
    task_config: Any
    execution: Execution = field(default_factory=Execution)
    probed: list[list[float]] | None = None  # what the protocol's probes found, if they were run before
    report: Report = lambda fraction, text: None
    notes: list[str] = field(default_factory=list)  # what a reader of the record should know
    paths: set[str] = field(default_factory=set)  # of training that were taken: kernel, general
    _facts: dict[int, Facts] = field(default_factory=dict, repr=False)

    @property
    def shape(self) -> Shape:
        return self.task.shape(self.task_config)

    def facts(self, seed: int) -> Facts:
        if seed not in self._facts:
            self._facts[seed] = draw_facts(self.task, self.task_config, seed)
        return self._facts[seed]

    def model(self, seed: int, dtype: str = "float32") -> nn.Module:
        """A freshly built model, with the initial weights of a trial."""
        module = build_model(self.architecture, self.shape, self.config, weight_seed(seed), dtype)
        return module.to(self.execution.device)

    def trainer(
        self, modules: Sequence[nn.Module], facts: Sequence[Facts], betas: Sequence[tuple[float, float]], planned: int
    ) -> Trainer:
        """The fused kernel where there is one and it covers the models, else the general way.

        `planned` is the number of steps that the trainer will be asked for, at most.
        """
        pairs = np.array(betas, dtype=np.float32)
        if self.execution.kernel != "off":
            try:
                trainer = self._kernel(modules, facts, pairs)
                self.paths.add("kernel")
                return trainer
            except NotApplicable as reason:
                if self.execution.kernel == "on":
                    raise Impossible(f"--kernel on: {self.architecture.name}: {reason}") from None
                if self.architecture.kernel:
                    self.note(f"general path: {reason}")
        self.paths.add("general")
        return GeneralTrainer(modules, facts, pairs, self.note, self.execution.compiling, planned)

    def _kernel(self, modules: Sequence[nn.Module], facts: Sequence[Facts], betas: Any) -> Trainer:
        if self.architecture.kernel is None:
            raise NotApplicable("this architecture has no kernel")
        return self.architecture.kernel(modules, facts, betas)

    def outcome(
        self,
        seed: int,
        state: Mapping[str, torch.Tensor],
        least_loss: Mapping[str, torch.Tensor] | None = None,
        **fields: Any,
    ) -> Outcome:
        """Freshly built models with the weights that were found: what was learned outside their state is lost."""
        other = None if least_loss is None else self.loaded(seed, least_loss)
        return Outcome(seed, self.loaded(seed, state), self.facts(seed), other, **fields)

    def loaded(self, seed: int, state: Mapping[str, torch.Tensor]) -> nn.Module:
        module = self.model(seed, float_type(state))
        module.load_state_dict(dict(state))
        return module

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def build_model(architecture: Architecture[Any], shape: Shape, config: Any, drawn_from: int, dtype: str) -> nn.Module:
    """A model with initial weights drawn from a seed of torch's generator, which is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(drawn_from)
        module = architecture.build(shape, config)
    if not isinstance(module, nn.Module):
        raise TypeError(f"build of '{architecture.name}' returned a {type(module).__name__}, not an nn.Module")
    return module.to(dtype=getattr(torch, dtype))
