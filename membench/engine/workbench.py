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
from membench.engine.randomness import drawn_from
from membench.engine.trainer import Trainer
from membench.errors import Impossible, NotApplicable
from membench.interface.declarations import Architecture, Task
from membench.interface.facts import Facts, Shape, draw_facts, weight_seed
from membench.measure.frozen import MAX_ROWS, check_frozen
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
        self,
        seeds: Sequence[int],
        betas: Sequence[tuple[float, float]],
        planned: int,
        dtype: str = "float32",
    ) -> Trainer:
        """Of new models of some trials, which may come several times: the fused kernel where there is one and it
        covers the models, else the general way.

        `planned` is the number of steps that the trainer will be asked for, at most.
        """
        modules, facts = [self.model(seed, dtype) for seed in seeds], [self.facts(seed) for seed in seeds]
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
        return GeneralTrainer(modules, facts, pairs, self.note, self.execution.compiling, planned, keys=seeds)

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

    def weights(self, trainer: Trainer, replica: int, seed: int) -> dict[str, torch.Tensor]:
        """The state that one of the trainer's replicas has reached, once it is seen to be all that it answers by."""
        state = trainer.state(replica)
        tokens = torch.from_numpy(self.facts(seed).inputs[:MAX_ROWS]).to(self.execution.device)
        trained = trainer.ask(replica, tokens) if isinstance(trainer, GeneralTrainer) else None
        check_frozen(self.loaded(seed, state), tokens, trained)
        return state

    def loaded(self, seed: int, state: Mapping[str, torch.Tensor]) -> nn.Module:
        """A model with this state and nothing else of a trial: what its state leaves out was drawn anew."""
        other = weight_seed(seed) ^ 1
        module = build_model(self.architecture, self.shape, self.config, other, float_type(state))
        module.load_state_dict(dict(state))
        return module.to(self.execution.device)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def build_model(architecture: Architecture[Any], shape: Shape, config: Any, seed: int, dtype: str) -> nn.Module:
    """A model with initial weights drawn from a seed; random generators are left as they were."""
    with drawn_from(seed):
        module = architecture.build(shape, config)
    if not isinstance(module, nn.Module):
        raise TypeError(f"build of '{architecture.name}' returned a {type(module).__name__}, not an nn.Module")
    module._apply(lambda value: _cast(value, getattr(torch, dtype)))
    return module


def _cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """In this precision, if it has one; complex stays complex, which nn.Module.to would not leave."""
    if value.is_complex():
        return value.to(dtype.to_complex())
    return value.to(dtype) if value.is_floating_point() else value
