"""The fused kernels against torch: gradients, trajectories, and what a Trainer promises."""

from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from membench.api import Architecture, Shape
from membench.engine import fused
from membench.engine.compiler import library
from membench.engine.fused import FusedTrainer, aligned
from membench.engine.general import GeneralTrainer
from membench.engine.trainer import Batches
from membench.errors import NotApplicable
from membench.interface.facts import Facts
from membench.kernels import Kernel, Layout, Section, require_plain
from membench_aot import ARCHITECTURE as AOT
from membench_aot.kernel import make_trainer as train_aot
from membench_attention_mlp import ARCHITECTURE as ATTENTION_MLP
from membench_attention_mlp.kernel import make_trainer as train_attention_mlp
from membench_linear_memory import ARCHITECTURE as LINEAR_MEMORY
from membench_linear_memory import kernel as linear_memory_kernel
from membench_linear_memory.kernel import make_trainer as train_linear_memory
from membench_mlp_memory import ARCHITECTURE as MLP_MEMORY
from membench_mlp_memory import kernel as mlp_memory_kernel
from membench_mlp_memory.kernel import make_trainer as train_mlp_memory
from membench_mlp_transformer import ARCHITECTURE as MLP
from membench_mlp_transformer.kernel import make_trainer as train_mlp
from membench_pair_mlp import ARCHITECTURE as PAIR_MLP
from membench_pair_mlp.kernel import make_trainer as train_pair_mlp

State = Mapping[str, Tensor]
KERNELS: dict[str, Kernel] = {
    AOT.name: train_aot,
    MLP.name: train_mlp,
    ATTENTION_MLP.name: train_attention_mlp,
    LINEAR_MEMORY.name: train_linear_memory,
    MLP_MEMORY.name: train_mlp_memory,
    PAIR_MLP.name: train_pair_mlp,
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model, and the contexts that it is tried on."""

    architecture: Architecture[Any]
    shape: Shape
    config: Any
    contexts: int

    def __str__(self) -> str:
        fields = (f"{name}={value}" for name, value in dataclasses.asdict(self.config).items())
        N, S, A = self.shape
        return f"{self.architecture.name}-N={N}-S={S}-A={A}-T={self.contexts}-{'-'.join(fields)}"

    def model(self, seed: int = 0, gain: float = 1.5) -> nn.Module:
        torch.manual_seed(seed)
        module = self.architecture.build(self.shape, self.config)
        if self.architecture is LINEAR_MEMORY:  # one small matrix, where others multiply several
            gain = 100 * gain**3
        if self.architecture in (PAIR_MLP, MLP_MEMORY):  # only two
            gain **= 1.5
        gain **= 2 / (1 + getattr(self.config, "layers", 1))  # layers multiply, and with them float32's errors
        with torch.no_grad():
            if self.architecture is PAIR_MLP and self.config.bias:  # zeros would hide what they do
                module.get_parameter("bias").normal_()
            for parameter in module.parameters():
                parameter.mul_(gain)
        return module

    @property
    def kernel(self) -> Kernel:
        return KERNELS[self.architecture.name]

    @property
    def parameters(self) -> list[str]:
        return [name for name, _ in self.model().named_parameters()]

    def facts(self, dense: bool, seed: int = 0) -> Facts:
        N, S, A = self.shape
        rng = np.random.default_rng(seed)
        ranks = rng.choice(N**S, self.contexts, replace=False)
        inputs = np.stack(np.unravel_index(ranks, (N,) * S), axis=1).astype(np.int64)
        targets = rng.dirichlet(np.ones(A), self.contexts) if dense else rng.integers(A, size=self.contexts)
        return Facts(inputs, targets, rng.dirichlet(np.full(self.contexts, 3.0)), N, A)

    def trainer(self, *modules: nn.Module, facts: Facts, betas: tuple[float, float] = (0.9, 0.99)) -> FusedTrainer:
        trainer = self.kernel(modules, [facts] * len(modules), np.array([betas] * len(modules), dtype=np.float32))
        assert isinstance(trainer, FusedTrainer)
        return trainer

    def logits(self, state: State, tokens: Tensor) -> Tensor:
        return LOGITS[self.architecture.name](state, tokens, self.config)


def aot(N: int, S: int, contexts: int | None = None, A: int | None = None, **options: Any) -> Case:
    return Case(AOT, Shape(N, S, A or N), AOT.config(**options), contexts or N**S)


def mlp(N: int, S: int, contexts: int | None = None, A: int | None = None, **options: Any) -> Case:
    return Case(MLP, Shape(N, S, A or N), MLP.config(**options), contexts or N**S)


def attention_mlp(N: int, S: int, contexts: int | None = None, A: int | None = None, **options: Any) -> Case:
    return Case(ATTENTION_MLP, Shape(N, S, A or N), ATTENTION_MLP.config(**options), contexts or N**S)


def linear_memory(N: int, S: int, contexts: int | None = None, A: int | None = None, **options: Any) -> Case:
    return Case(LINEAR_MEMORY, Shape(N, S, A or N), LINEAR_MEMORY.config(**options), contexts or N**S)


def mlp_memory(N: int, S: int, contexts: int | None = None, A: int | None = None, **options: Any) -> Case:
    return Case(MLP_MEMORY, Shape(N, S, A or N), MLP_MEMORY.config(**options), contexts or N**S)


def pair_mlp(N: int, S: int, contexts: int | None = None, A: int | None = None, **options: Any) -> Case:
    return Case(PAIR_MLP, Shape(N, S, A or N), PAIR_MLP.config(**options), contexts or N**S)


AOT_CASES = [
    aot(5, 1, d=3, H=2),
    aot(9, 1, d=4, d_h=2, H=9, skip_position=False),
    aot(6, 2, d=4, H=1),
    aot(7, 2, d=5, H=8, scale=True),
    aot(9, 2, d=10, H=21),
    aot(11, 2, d=7, d_h=3, H=17, skip_position=False),
    aot(17, 2, d=3, d_h=1, H=35),
    aot(13, 2, 90, d=6, H=12, scale=True, skip_position=False),
    aot(20, 2, 150, d=9, d_h=4, H=7),
    aot(70, 2, d=3, H=3),
    aot(130, 2, d=2, H=2),
    aot(3, 2, d=1, H=1),
    aot(4, 3, d=5, H=11),
    aot(6, 3, 100, d=4, d_h=3, H=6, scale=True, skip_position=False),
    aot(3, 4, d=6, d_h=2, H=26),
    aot(5, 4, 300, d=3, H=5),
    aot(8, 2, d=6, d_h=3, H=10, shared_projection=True),
    aot(8, 2, d=5, d_h=5, H=10, shared_projection=True),
    aot(8, 2, d=5, d_h=5, H=10, shared_projection=True, skip_position=True, scale=False),
    aot(8, 2, d=3, d_h=9, H=10, shared_projection=True),
    aot(12, 2, 40, d=10, d_h=1, H=20, shared_projection=True),
    aot(4, 3, d=2, d_h=7, H=4, shared_projection=True, scale=False),
    aot(7, 1, d=6, d_h=4, H=3, shared_projection=True),
    aot(8, 2, d=6, d_h=3, H=10, shared_projection=True, one_projection=True),
    aot(9, 2, A=2, d=4, H=5),
    aot(9, 2, A=31, d=10, H=21),
    aot(20, 2, 150, A=3, d=9, d_h=4, H=7),
    aot(20, 2, 150, A=90, d=9, d_h=4, H=7, skip_position=False),
    aot(4, 3, A=17, d=5, H=11),
    aot(130, 2, A=5, d=2, H=2),
    aot(6, 2, d=4, H=1, layers=2),
    aot(9, 2, d=10, H=21, layers=3),
    aot(11, 2, d=7, d_h=3, H=17, layers=3, skip_position=False),
    aot(13, 2, 90, d=6, H=12, layers=2, skip_position=False),
    aot(20, 2, 150, A=90, d=9, d_h=4, H=7, layers=3),
    aot(70, 2, d=3, H=5, layers=3, shared_projection=True),
    aot(130, 2, A=5, d=2, H=2, layers=2),
    aot(3, 2, d=1, H=1, layers=4),
    aot(8, 2, d=5, H=10, layers=2, shared_projection=True, skip_position=True, scale=False),
    aot(8, 2, d=6, d_h=3, H=10, layers=3, shared_projection=True),
    aot(8, 2, d=6, d_h=3, H=10, layers=3, shared_projection=True, one_projection=True),
    aot(20, 2, 150, A=3, d=3, d_h=9, H=10, layers=2, shared_projection=True, one_projection=True),
    aot(8, 2, A=3, d=6, d_h=3, H=10, shared_projection=True),
    aot(12, 2, 40, A=33, d=5, d_h=7, H=6, shared_projection=True),
    aot(7, 1, A=20, d=3, H=2),
]
MLP_CASES = [
    mlp(5, 1, d=3, w=4),
    mlp(5, 1, d=3, w=4, skip_position=False),
    mlp(6, 2, d=4, w=0),
    mlp(6, 2, d=4, w=1, bias=False),
    mlp(7, 2, d=5, w=8, scale=True),
    mlp(9, 2, d=10, w=60),
    mlp(9, 2, d=10, w=60, bias=False, skip_position=False),
    mlp(11, 2, 50, d=7, w=33, scale=True, skip_position=False),
    mlp(30, 2, d=8, w=100),
    mlp(70, 2, d=2, w=10),
    mlp(3, 2, d=1, w=3),
    mlp(17, 2, d=3, w=24, bias=False),
    mlp(20, 2, 65, d=9, w=17),
    mlp(4, 3, d=5, w=11),
    mlp(6, 3, 100, d=4, w=40, scale=True),
    mlp(6, 3, d=4, w=12, skip_position=False),
    mlp(3, 4, d=6, w=26),
    mlp(5, 4, 300, d=3, w=5, bias=False),
    mlp(5, 4, 300, d=13, w=9, scale=True, skip_position=False),
    mlp(8, 2, d=16, w=64),
    mlp(9, 2, A=2, d=4, w=7),
    mlp(9, 2, A=31, d=10, w=60),
    mlp(20, 2, 65, A=3, d=9, w=17, skip_position=False),
    mlp(4, 3, A=17, d=5, w=11, bias=False),
    mlp(70, 2, A=5, d=2, w=10),
    mlp(5, 1, A=20, d=3, w=4),
    mlp(6, 2, d=4, w=0, layers=2),
    mlp(9, 2, d=10, w=60, layers=3),
    mlp(11, 2, 50, d=7, w=33, layers=3, skip_position=False),
    mlp(20, 2, 65, A=3, d=9, w=17, layers=2, bias=False, skip_position=False),
    mlp(70, 2, A=5, d=3, w=10, layers=2, scale=False),
    mlp(3, 2, d=1, w=3, layers=4),
    mlp(9, 2, A=31, d=16, w=64, layers=3, skip_position=False),
]
ATTENTION_MLP_CASES = [
    attention_mlp(5, 1, d=3, w=4),
    attention_mlp(5, 1, A=20, d=3, w=4, tied=True),
    attention_mlp(6, 2, d=4, w=0),
    attention_mlp(6, 2, d=4, w=0, tied=True),
    attention_mlp(6, 2, d=4, w=1, alpha=0.0, tied=True),
    attention_mlp(7, 2, d=5, w=8),
    attention_mlp(9, 2, d=10, w=45),
    attention_mlp(9, 2, d=10, w=45, alpha=1.702, tied=True),
    attention_mlp(11, 2, 50, d=7, w=33, alpha=2.0),
    attention_mlp(11, 2, 50, d=7, w=33, alpha=0.5, tied=True),
    attention_mlp(30, 2, d=8, w=64),
    attention_mlp(3, 2, d=1, w=3),
    attention_mlp(70, 2, A=5, d=2, w=10),
    attention_mlp(20, 2, 65, A=33, d=9, w=17),
    attention_mlp(20, 2, 65, A=3, d=9, w=17, tied=True),
    attention_mlp(4, 3, d=5, w=11),
    attention_mlp(6, 3, 100, A=2, d=4, w=40),
    attention_mlp(6, 3, 100, A=17, d=13, w=9, tied=True),
    attention_mlp(5, 4, 300, d=3, w=5),
]
LINEAR_MEMORY_CASES = [
    linear_memory(5, 1, d=3),
    linear_memory(9, 1, A=4, d=16),
    linear_memory(6, 2, d=1),
    linear_memory(7, 2, d=5),
    linear_memory(20, 2, 65, d=9),
    linear_memory(20, 2, d=54),
    linear_memory(9, 2, A=2, d=8),
    linear_memory(9, 2, A=31, d=10),
    linear_memory(4, 3, d=5),
    linear_memory(6, 3, 100, A=17, d=23),
    linear_memory(5, 4, 300, d=3),
]
MLP_MEMORY_CASES = [
    mlp_memory(5, 1, d=3),
    mlp_memory(9, 1, A=4, d=16, m=5),
    mlp_memory(6, 2, d=1, m=3),
    mlp_memory(7, 2, d=5, m=1),
    mlp_memory(20, 2, 65, d=9, m=17),
    mlp_memory(20, 2, d=12, m=40),
    mlp_memory(9, 2, A=2, d=8),
    mlp_memory(9, 2, A=31, d=10, m=24),
    mlp_memory(300, 1, A=10, d=10, m=20),
    mlp_memory(4, 3, d=5),
    mlp_memory(6, 3, 100, A=17, d=23, m=9),
    mlp_memory(5, 4, 300, d=3, m=12),
    mlp_memory(9, 2, d=6, m=13, activation="silu"),
    mlp_memory(300, 1, A=10, d=10, m=20, activation="silu"),
    mlp_memory(7, 2, d=5, m=12, experts=3),
    mlp_memory(150, 1, A=10, d=10, m=20, experts=20, activation="silu"),
    mlp_memory(6, 3, 100, A=17, d=9, m=22, experts=2),
]
PAIR_MLP_CASES = [
    pair_mlp(5, 1, w=3),
    pair_mlp(9, 1, A=4, w=16),
    pair_mlp(6, 2, w=1),
    pair_mlp(7, 2, w=8),
    pair_mlp(20, 2, 65, w=9),
    pair_mlp(32, 2, 568, A=16, w=16),
    pair_mlp(9, 2, A=2, w=33),
    pair_mlp(9, 2, A=31, w=10),
    pair_mlp(4, 3, w=5),
    pair_mlp(6, 3, 100, A=17, w=23),
    pair_mlp(5, 4, 300, w=12),
    pair_mlp(9, 2, w=11, activation="gelu"),
    pair_mlp(20, 2, 65, A=5, w=16, activation="none"),
    pair_mlp(9, 2, w=16, bias=True),
    pair_mlp(6, 3, 100, A=17, w=9, residual=True),
    pair_mlp(32, 2, 568, A=16, w=16, norm=True),
    pair_mlp(9, 2, A=5, w=13, activation="gelu", bias=True, residual=True, norm=True),
    pair_mlp(20, 2, 65, w=8, activation="none", bias=True, norm=True),
]
CASES = AOT_CASES + MLP_CASES + ATTENTION_MLP_CASES + LINEAR_MEMORY_CASES + MLP_MEMORY_CASES + PAIR_MLP_CASES
SMALL = [
    aot(9, 2, d=6, H=10),
    aot(6, 3, 100, d=5, d_h=3, H=9, shared_projection=True),
    mlp(9, 2, d=6, w=30),
    aot(9, 2, A=4, d=6, H=10),
    mlp(9, 2, A=20, d=6, w=30),
    attention_mlp(9, 2, d=6, w=20),
    attention_mlp(9, 2, A=20, d=6, w=20, tied=True),
    attention_mlp(6, 3, 100, A=4, d=5, w=9),
    linear_memory(9, 2, d=11),
    linear_memory(6, 3, 100, A=4, d=8),
    pair_mlp(9, 2, w=11),
    pair_mlp(6, 3, 100, A=4, w=16),
    pair_mlp(9, 2, w=11, activation="gelu", bias=True, residual=True, norm=True),
    aot(9, 2, d=6, H=5, layers=3),
    aot(9, 2, 50, A=4, d=6, d_h=3, H=9, layers=2, shared_projection=True, one_projection=True),
    mlp(9, 2, d=6, w=30, layers=3, skip_position=False),
    mlp_memory(9, 2, d=7, m=19),
    mlp_memory(6, 3, 100, A=4, d=8),
    mlp_memory(9, 2, d=7, m=18, experts=6, activation="silu"),
]
ONE_OF_EACH = [SMALL[0], SMALL[2], SMALL[5], SMALL[6], SMALL[8], SMALL[10], SMALL[16]]
cases = pytest.mark.parametrize("case", SMALL, ids=str)


def aot_logits(state: State, tokens: Tensor, config: Any) -> Tensor:
    """The model, one context at a time, as its definition reads."""
    word, position = state["word.weight"], state["position.weight"]
    streams = []
    for context in tokens:
        stream = word[context] + (position if config.skip_position else 0)  # [S, d]
        for layer in range(config.layers):
            stream = stream + _heads(state, f"layers.{layer}.", stream, config)
        streams.append(stream[-1])
    return torch.stack(streams) @ state["unembed.weight"].T


def _heads(state: State, place: str, stream: Tensor, config: Any) -> Tensor:
    """What the heads of one layer write at each position, [S, d]."""
    query, key, value, output = (state[place + name] for name in ("query", "key", "value", "output"))
    compress, decompress = (state.get(name, state.get(place + name)) for name in ("compress", "decompress"))
    read = stream if compress is None else stream @ compress.T
    read = read if config.skip_position else read + state["position.weight"]
    update = torch.zeros_like(read)
    for h in range(config.H):
        scores = (read @ query[h].T) @ (read @ key[h].T).T  # [S, S]
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
        weights = (scores / math.sqrt(config.d_h) if config.scale else scores).softmax(1)
        update = update + weights @ read @ value[h].T @ output[h].T
    return update if decompress is None else update @ decompress.T


def mlp_logits(state: State, tokens: Tensor, config: Any) -> Tensor:
    word, position = state["word.weight"], state["position.weight"]
    streams = []
    for context in tokens:
        stream = word[context] + (position if config.skip_position else 0)  # [S, d]
        for at in range(config.layers):
            layer = {name.removeprefix(f"layers.{at}."): value for name, value in state.items()}
            read = stream if config.skip_position else stream + position
            scores = (read @ layer["query"].T) @ (read @ layer["key"].T).T  # [S, S]
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
            weights = (scores / math.sqrt(config.d) if config.scale else scores).softmax(1)
            stream = stream + weights @ read @ layer["value"].T @ layer["output"].T
            hidden = stream @ layer["hidden.weight"].T + layer.get("hidden.bias", torch.zeros(()))
            stream = stream + nn.functional.gelu(hidden) @ layer["project.weight"].T
        streams.append(stream[-1])
    return torch.stack(streams) @ state["unembed.weight"].T


def attention_mlp_logits(state: State, tokens: Tensor, config: Any) -> Tensor:
    word, position = state["word.weight"], state["position.weight"]
    mixer = {name.removeprefix("mixer."): value for name, value in state.items()}
    streams = []
    for context in tokens:
        read = word[context] + position  # [S, d]
        weights = ((read @ mixer["key"].T) @ (mixer["query"] @ read[-1])).softmax(0)
        content = read[-1] + mixer["output"] @ (mixer["value"] @ (weights @ read))
        streams.append(content + _neuron_heads(state, content, config.alpha))
    return torch.stack(streams) @ state["unembed.weight"].T


def _neuron_heads(state: State, content: Tensor, alpha: float) -> Tensor:
    """What heads of dimension 1 write that attend to the content or, with score and value 0, to a zero token."""
    heads = {name.removeprefix("neurons."): value for name, value in state.items()}
    if "W_1" in heads:
        z = heads["W_1"] @ content + heads["b_1"]
        score, value, output = alpha * z, z, heads["W_2"]
    else:
        token = torch.cat([content, content.new_ones(1)])
        score, value = (heads["query"] @ token) * (heads["key"] @ token), heads["value"] @ token
        output = heads["output"]
    weights = torch.stack([score, torch.zeros_like(score)]).softmax(0)
    return output @ (weights[0] * value)


def linear_memory_logits(state: State, tokens: Tensor, config: Any) -> Tensor:
    keys = []
    for context in tokens:
        phase = sum(state["phases"][at, token] for at, token in enumerate(context))
        key = torch.as_tensor(phase).cos()
        keys.append(key / key.norm())
    return torch.stack(keys) @ (32 * state["weight"]).T @ state["outputs"].T


def mlp_memory_logits(state: State, tokens: Tensor, config: Any) -> Tensor:
    written = []
    for context in tokens:
        phase = sum(state["phases"][at, token] for at, token in enumerate(context))
        key = torch.as_tensor(phase).cos()
        key = math.sqrt(config.d) * key / key.norm()
        neurons = state["first"] @ key
        neurons = neurons.clamp(min=0) if config.activation == "relu" else neurons * neurons.sigmoid()
        if config.experts > 1:
            neurons = neurons * (state["gate"] @ key).softmax(0).repeat_interleave(config.m // config.experts)
        written.append(state["second"] @ neurons)
    return torch.stack(written) @ state["outputs"].T


def pair_mlp_logits(state: State, tokens: Tensor, config: Any) -> Tensor:
    neurons = []
    for context in tokens:
        rows = [state[f"tables.{at}.weight"][token] for at, token in enumerate(context)]
        inputs = torch.stack(rows).sum(0) + state.get("bias", torch.zeros(()))
        activate = {"relu": torch.relu, "gelu": nn.functional.gelu, "none": torch.clone}[config.activation]
        read = activate(inputs) + (inputs if config.residual else 0)
        neurons.append(read / (read.square().mean() + 1e-6).sqrt() if config.norm else read)
    return torch.stack(neurons) @ state["unembed.weight"].T + state.get("unembed.bias", torch.zeros(()))


LOGITS: dict[str, Callable[[State, Tensor, Any], Tensor]] = {
    AOT.name: aot_logits,
    MLP.name: mlp_logits,
    ATTENTION_MLP.name: attention_mlp_logits,
    LINEAR_MEMORY.name: linear_memory_logits,
    MLP_MEMORY.name: mlp_memory_logits,
    PAIR_MLP.name: pair_mlp_logits,
}


def loss_of(
    logits: Callable[[Tensor], Tensor],
    facts: Facts,
    batches: Batches | None = None,
    step: int = 0,
    replica: int = 0,
    slack: float = 0.0,
) -> Tensor:
    inputs, targets, share = (torch.from_numpy(part) for part in (facts.inputs, facts.targets, facts.prior))
    if batches is not None:
        contexts, targets = batches.contexts[replica, step], torch.from_numpy(batches.labels[replica, step])
        inputs, share = inputs[contexts], torch.full((len(contexts),), 1 / len(contexts), dtype=torch.float64)
    losses = nn.functional.cross_entropy(logits(inputs), targets, reduction="none")
    return (share * (-((-losses).exp() + slack).log() if slack else losses)).sum()


def gradient_of(
    case: Case, facts: Facts, batches: Batches | None = None, slack: float = 0.0, gain: float = 1.5
) -> dict[str, Tensor]:
    """The exact gradient by autograd, in float64."""
    exact = case.model(gain=gain).double()
    loss_of(exact, facts, batches, slack=slack).backward()
    return {name: p.grad for name, p in exact.named_parameters() if p.grad is not None}


def draw(facts: Facts, steps: int, batch: int, replicas: int = 1, seed: int = 0) -> Batches:
    rng = np.random.default_rng(seed)
    size = (replicas, steps, batch)
    return Batches(rng.integers(len(facts), size=size), rng.integers(facts.answers, size=size))


def assert_close(found: State, expected: State, tolerance: float) -> None:
    """Each tensor's error against its own norm, or a hundredth of the largest where it is much smaller."""
    assert found.keys() == expected.keys()
    largest = max(float(value.norm()) for value in expected.values())
    for name, value in expected.items():
        error = float((found[name].double() - value).norm())
        assert error <= tolerance * max(float(value.norm()), largest / 100), name


def progress(case: Case, module: nn.Module, facts: Facts, batches: Batches | None = None) -> tuple[float, float]:
    seen = case.trainer(module, facts=facts).advance(np.full((1, 1), 1e-9, np.float32), batches)
    return float(seen.loss[0, 0]), float(seen.accuracy[0, 0])


@pytest.mark.parametrize("case", [case for case in CASES if case.contexts <= 300], ids=str)
def test_the_reference_is_the_model(case: Case) -> None:
    module = case.model().double()
    tokens = torch.from_numpy(case.facts(dense=False).inputs)
    torch.testing.assert_close(case.logits(dict(module.state_dict()), tokens), module(tokens))


@pytest.mark.parametrize("dense", [False, True], ids=["labels", "distributions"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_exact_gradient_is_that_of_autograd(case: Case, dense: bool) -> None:
    facts = case.facts(dense)
    assert_close(case.trainer(case.model(), facts=facts).gradient(0), gradient_of(case, facts), 1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_gradient_of_a_batch_is_that_of_autograd(case: Case) -> None:
    facts = case.facts(dense=False)
    for batch in (1, 150):
        batches = draw(facts, 1, batch)
        gradient = case.trainer(case.model(), facts=facts).gradient(0, batches)
        assert_close(gradient, gradient_of(case, facts, batches), 1e-5)


@pytest.mark.parametrize("slack", [0.001, 0.2, 1.0])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_gradient_of_the_bounded_loss_is_that_of_autograd(case: Case, slack: float) -> None:
    facts = case.facts(dense=False)
    trainer = case.trainer(case.model(), facts=facts)
    for batches in (None, draw(facts, 1, 150)):
        gradient = trainer.gradient(0, batches, slack)  # where d=1 its few terms nearly cancel
        tolerance = 1e-4 if getattr(case.config, "d", None) == 1 else 1e-5
        assert_close(gradient, gradient_of(case, facts, batches, slack), tolerance)


@pytest.mark.parametrize("mode", ["labels", "distributions", "batches"])
@cases
def test_it_trains_as_torch_does(case: Case, mode: str) -> None:
    facts = case.facts(dense=mode == "distributions")
    rates = np.array([[0.02, 0.01] + [0.005 * k for k in range(1, 9)]], dtype=np.float32)
    batches = draw(facts, 10, 40) if mode == "batches" else None
    trainer = case.trainer(case.model(), facts=facts, betas=(0.8, 0.95))
    halves = [
        trainer.advance(rates[:, part], batches and Batches(batches.contexts[:, part], batches.labels[:, part]))
        for part in (slice(0, 4), slice(4, 10))  # the moments carry over
    ]
    module = case.model().double()
    adam = torch.optim.Adam(module.parameters(), betas=(0.8, 0.95))
    losses = []
    for step, rate in enumerate(rates[0]):
        adam.param_groups[0]["lr"] = float(rate)
        adam.zero_grad()
        loss = loss_of(module, facts, batches, step)
        loss.backward()
        adam.step()
        losses.append(loss.item())
    np.testing.assert_allclose(np.concatenate([half.loss[0] for half in halves]), losses, rtol=1e-5)
    assert_close(trainer.state(0), dict(module.state_dict()), 1e-5)


@pytest.mark.parametrize("mode", ["labels", "distributions", "batches", "slack"])
@cases
def test_it_trains_as_the_general_way_does(case: Case, mode: str) -> None:
    facts, rates = case.facts(dense=mode == "distributions"), np.full((1, 12), 0.01, np.float32)
    batches = draw(facts, 12, 40) if mode == "batches" else None
    slack = np.geomspace(0.01, 1, 12, dtype=np.float32)[None] if mode == "slack" else None
    fused = case.trainer(case.model(), facts=facts)
    general = GeneralTrainer([case.model()], [facts], np.array([[0.9, 0.99]], dtype=np.float32))
    losses = [trainer.advance(rates, batches, slack).loss for trainer in (fused, general)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert_close(fused.state(0), {name: value.double() for name, value in general.state(0).items()}, 1e-3)


@cases
def test_accuracy_is_that_of_the_largest_logit(case: Case) -> None:
    module = case.model()
    for dense in (False, True):
        facts = case.facts(dense)
        with torch.no_grad():
            answers = module(torch.from_numpy(facts.inputs)).argmax(1).numpy()
        right = facts.distributions()[np.arange(len(facts)), answers]
        assert progress(case, module, facts)[1] == pytest.approx(float(facts.prior @ right), abs=1e-6)
    batches = draw(facts, 1, 64)
    right = answers[batches.contexts[0, 0]] == batches.labels[0, 0]
    assert progress(case, module, facts, batches)[1] == pytest.approx(right.mean())


@cases
def test_a_tie_is_wrong(case: Case) -> None:
    module, last = case.model(), case.parameters[-1].partition(".")[0]
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.startswith(last):  # of an unembedding, also its biases
                parameter.zero_()
    facts = case.facts(dense=False)
    assert progress(case, module, facts) == pytest.approx((math.log(case.shape.answers), 0.0))
    assert progress(case, module, case.facts(dense=True))[1] == 0.0
    assert progress(case, module, facts, draw(facts, 1, 50))[1] == 0.0


MEMORISABLE = [
    aot(7, 2, d=6, H=8),
    aot(7, 2, d=6, H=4, layers=3),
    mlp(7, 2, 30, d=8, w=64),
    mlp(7, 2, 30, d=8, w=32, layers=2),
    attention_mlp(7, 2, 30, d=8, w=32),
    attention_mlp(7, 2, 30, d=8, w=64, tied=True),
    linear_memory(7, 2, 30, d=20),
    mlp_memory(7, 2, 30, d=8, m=32),
    pair_mlp(7, 2, 30, w=32),
]


@pytest.mark.parametrize("case", MEMORISABLE, ids=str)
def test_everything_memorised_is_an_accuracy_of_exactly_one(case: Case) -> None:
    facts = case.facts(dense=False)
    trainer = case.trainer(case.model(), facts=facts)
    assert trainer.advance(np.full((1, 600), 0.02, np.float32)).accuracy[0, -1] == 1.0
    module = case.model()
    module.load_state_dict(trainer.state(0))
    assert (module(torch.from_numpy(facts.inputs)).argmax(1).numpy() == facts.targets).all()


@pytest.mark.parametrize("case", MEMORISABLE, ids=str)
def test_what_is_memorised_is_kept_as_it_was_seen(case: Case) -> None:
    facts = case.facts(dense=False)
    trainer = case.trainer(case.model(), facts=facts)
    seen = trainer.advance(np.full((1, 600), 0.02, np.float32), finishes=True)
    taken = int(np.isfinite(seen.loss[0]).sum()) - 1  # the last look takes no step
    assert 0 < taken < 600
    assert seen.accuracy[0, taken] == 1.0
    plain = case.trainer(case.model(), facts=facts)
    plain.advance(np.full((1, taken), 0.02, np.float32))
    for name, value in plain.state(0).items():
        assert torch.equal(value, trainer.state(0)[name]), name


@cases
def test_large_weights_do_not_overflow(case: Case) -> None:
    facts = case.facts(dense=False)
    loss, _ = progress(case, case.model(gain=15.0), facts)
    exact = loss_of(case.model(gain=15.0).double(), facts)
    assert loss > (10 if getattr(case.config, "norm", False) else 1e3)
    assert loss == pytest.approx(exact.item(), rel=1e-3)


@cases
def test_training_repeats_bit_for_bit_whoever_trains_beside(case: Case) -> None:
    facts = case.facts(dense=False)
    rates = np.full((3, 20), 0.01, np.float32)
    for batches in (None, draw(facts, 20, 50, replicas=3)):
        together = case.trainer(*(case.model(seed) for seed in range(3)), facts=facts)
        together.advance(rates, batches)
        for seed in range(3):
            alone = case.trainer(case.model(seed), facts=facts)
            mine = batches and Batches(batches.contexts[[seed]], batches.labels[[seed]])
            alone.advance(rates[[seed]], mine)
            for name, value in alone.state(0).items():
                assert torch.equal(value, together.state(seed)[name]), name


@cases
def test_a_replica_without_a_rate_is_left_alone(case: Case) -> None:
    facts = case.facts(dense=False)
    trainer = case.trainer(case.model(0), case.model(1), facts=facts)
    rates = np.full((2, 5), 0.01, np.float32)
    rates[1] = 0
    seen = trainer.advance(rates)
    for values in (seen.loss, seen.accuracy):
        assert np.isfinite(values[0]).all()
        assert np.isnan(values[1]).all()
    trainer.advance(np.full((2, 5), 0.01, np.float32))
    fresh = case.trainer(case.model(1), facts=facts)
    fresh.advance(np.full((1, 5), 0.01, np.float32))
    for name, value in fresh.state(0).items():
        assert torch.equal(value, trainer.state(1)[name]), name


@cases
def test_each_replica_has_its_own_betas_and_facts(case: Case) -> None:
    make, first = case.kernel, case.parameters[0]
    betas = np.array([[0.9, 0.9], [0.5, 0.999]], dtype=np.float32)
    facts = [case.facts(dense=False, seed=1), case.facts(dense=True, seed=2)]
    together = make([case.model(), case.model()], facts, betas)
    together.advance(np.full((2, 5), 0.01, np.float32))
    for row in range(2):
        alone = make([case.model()], [facts[row]], betas[[row]])
        alone.advance(np.full((1, 5), 0.01, np.float32))
        for name, value in alone.state(0).items():
            assert torch.equal(value, together.state(row)[name]), name
    assert not torch.equal(together.state(0)[first], together.state(1)[first])


@cases
def test_the_state_is_a_copy_in_the_order_of_the_module(case: Case) -> None:
    module, first = case.model(), case.parameters[0]
    trainer = case.trainer(module, facts=case.facts(dense=False))
    state = trainer.state(0)
    assert list(state) == list(module.state_dict())
    for name, value in module.state_dict().items():
        assert torch.equal(state[name], value)
        state[name].zero_()
    assert trainer.state(0)[first].abs().sum() > 0
    trainer.advance(np.full((1, 1), 0.1, np.float32))
    assert torch.equal(module.state_dict()[first], case.model().state_dict()[first])


@cases
def test_batches_outside_the_facts_are_refused(case: Case) -> None:
    facts = case.facts(dense=False)
    trainer = case.trainer(case.model(), facts=facts)
    good = draw(facts, 1, 4)
    rates = np.full((1, 1), 0.1, np.float32)
    with pytest.raises(ValueError, match=r"contexts of a batch must be in 0\.\."):
        trainer.advance(rates, Batches(good.contexts + len(facts), good.labels))
    with pytest.raises(ValueError, match=r"labels of a batch must be in 0\.\."):
        trainer.advance(rates, Batches(good.contexts, good.labels - facts.answers))
    with pytest.raises(ValueError, match=rf"labels of a batch must be in 0\.\.{facts.answers - 1}"):
        trainer.advance(rates, Batches(good.contexts, np.full_like(good.labels, facts.answers)))


BETAS = np.array([[0.9, 0.99]], dtype=np.float32)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (aot(6, 3, d=4, H=2, layers=2), "several layers for S=2, not layers=2 for S=3"),
        (aot(6, 2, d=4, H=0), "at least one head, not H=0"),
        (mlp(6, 1, d=4, w=2, layers=3), "several layers for S=2, not layers=3 for S=1"),
    ],
    ids=str,
)
def test_sizes_that_are_not_covered(case: Case, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        case.trainer(case.model(), facts=case.facts(dense=False))


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_models_that_are_not_covered(case: Case) -> None:
    make, facts, (N, S, A) = case.kernel, [case.facts(dense=False)], case.shape
    with pytest.raises(NotApplicable, match=r"trains float32 on the CPU, and .* is torch\.float64 on cpu"):
        make([case.model().double()], facts, BETAS)
    with pytest.raises(NotApplicable, match=r"trains float32 on the CPU, and .* is torch\.float32 on meta"):
        make([case.model().to("meta")], facts, BETAS)
    for name, other in KERNELS.items():
        if name != case.architecture.name:
            with pytest.raises(NotApplicable, match=rf"the kernel trains \w+, not {type(case.model()).__name__}"):
                other([case.model()], facts, BETAS)
    for other_shape in (aot(5, 3), aot(9, 2, A=5)):
        with pytest.raises(NotApplicable, match=f"the model is for N={N}, S={S} and A={A}"):
            make([case.model()], [other_shape.facts(dense=False)], BETAS)
    with pytest.raises(NotApplicable, match="replicas of one shape"):
        make([case.model(), aot(9, 2, d=3).model()], facts * 2, np.repeat(BETAS, 2, axis=0))
    frozen, first = case.model(), case.parameters[0]
    frozen.get_parameter(first).requires_grad_(False)
    with pytest.raises(NotApplicable, match=f"{first} is frozen"):
        make([frozen], facts, BETAS)


def test_a_mask_in_the_weights_is_not_covered() -> None:
    case = attention_mlp(6, 2, d=4, w=2, mask="weights")
    with pytest.raises(NotApplicable, match="trains mask=explicit, not mask=weights"):
        train_attention_mlp([case.model()], [case.facts(dense=False)], BETAS)


@pytest.mark.parametrize("options", [{"gate": True}, {"mixing": "multiply"}])
def test_a_pair_mlp_that_multiplies_is_not_covered(options: dict[str, Any]) -> None:
    case = pair_mlp(6, 2, w=4, **options)
    with pytest.raises(NotApplicable, match="neurons that add up tokens and have no gate, not PairMLPConfig"):
        train_pair_mlp([case.model()], [case.facts(dense=False)], BETAS)


@pytest.mark.parametrize("case", [SMALL[8], SMALL[9], SMALL[16], SMALL[18]], ids=str)
def test_frozen_vectors_come_back_as_they_were(case: Case) -> None:
    modules, facts = [case.model(0), case.model(1)], case.facts(dense=False)
    trainer = case.trainer(*modules, facts=facts)
    assert trainer.gradient(0).keys() == set(case.parameters)
    trainer.advance(np.full((2, 30), 0.01, np.float32))
    for replica, module in enumerate(modules):
        state = trainer.state(replica)
        for name in case.parameters:
            assert not torch.equal(state[name], module.get_parameter(name)), name
        for name, buffer in module.named_buffers():
            assert torch.equal(state[name], buffer), name


@pytest.mark.parametrize(
    "case",
    [linear_memory(9, 2, d=11), linear_memory(7, 3, 300, d=6), mlp_memory(9, 2, d=7), mlp_memory(7, 3, 300, d=6, m=9)],
    ids=str,
)
def test_keys_that_are_made_anew_train_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, rates = case.facts(dense=False), np.full((1, 20), 0.01, np.float32)
    kept = case.trainer(case.model(), facts=facts)
    monkeypatch.setattr(linear_memory_kernel, "KEPT_KEYS", 0)
    monkeypatch.setattr(mlp_memory_kernel, "KEPT_KEYS", 0)
    anew = case.trainer(case.model(), facts=facts)
    for trainer in (kept, anew):
        trainer.advance(rates)
    for name in case.parameters:
        assert torch.equal(kept.state(0)[name], anew.state(0)[name]), name


def test_frozen_vectors_of_another_type_or_shape_are_refused() -> None:
    case = linear_memory(9, 2, d=6)
    facts, betas = [case.facts(dense=False)], np.repeat(BETAS, 2, axis=0)
    double = case.model()
    double.register_buffer("outputs", double.get_buffer("outputs").double())
    with pytest.raises(NotApplicable, match=r"trains float32 on the CPU, and outputs is torch\.float64"):
        train_linear_memory([double], facts, BETAS)
    with pytest.raises(NotApplicable, match="replicas of one shape"):  # the matrices are of one shape, the buffers not
        train_linear_memory([case.model(), linear_memory(9, 2, A=3, d=6).model()], facts * 2, betas)


class Affine(nn.Module):
    """A parameter, and a buffer of the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.arange(3.0))


def test_a_layout_holds_what_the_state_holds_and_trains_what_the_model_trains() -> None:
    weight, shift = Section("weight", (0,)), Section("shift", (0,))
    layout = Layout(Affine(), [weight], frozen=[shift])
    assert layout.pack(Affine().state_dict()).tolist() == [1, 1, 1] + 5 * [0] + [0, 1, 2] + 5 * [0]
    for sections, frozen, reason in (
        ([weight], [], "a model with or without shift"),
        ([], [shift], "a model with or without weight"),
        ([weight, shift], [], "differ on whether shift is trained"),
        ([shift], [weight], "differ on whether shift, weight is trained"),
    ):
        with pytest.raises(NotApplicable, match=reason):
            Layout(Affine(), sections, frozen)


def test_weights_that_are_shared_are_not_trained_apart() -> None:
    shared = aot(9, 2, d=6, H=10).model()
    shared.get_submodule("unembed").weight = shared.get_parameter("word.weight")
    facts = [aot(9, 2, d=6, H=10).facts(dense=False)]
    require_plain([shared], facts)
    with pytest.raises(NotApplicable, match=r"differ on whether unembed\.weight is trained"):
        train_aot([shared], facts, BETAS)


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_without_a_compiler_there_is_no_kernel(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CXX", "/nonexistent")
    with pytest.raises(NotApplicable, match="no C\\+\\+ compiler found"):
        case.trainer(case.model(), facts=case.facts(dense=False))


class Other(ctypes.Structure):
    """A structure with fewer fields than any of a kernel."""

    _fields_ = (("vocab", ctypes.c_int64), ("length", ctypes.c_int64), ("answers", ctypes.c_int64))


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=str)
def test_a_structure_that_the_kernel_would_misread_is_refused(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, trainer = case.facts(dense=False), case.trainer(case.model(), facts=case.facts(dense=False))
    arguments = trainer._layout, [case.model()], [facts], BETAS
    with pytest.raises(NotApplicable, match=r"Other has 24 bytes in Python and \d+ in the kernel"):
        FusedTrainer(trainer._library, Other(*case.shape), *arguments)
    monkeypatch.setattr(fused, "_Run", Other)
    with pytest.raises(NotApplicable, match=r"Other has 24 bytes in Python and 104 in the kernel"):
        FusedTrainer(trainer._library, trainer._shape, *arguments)


def test_a_library_that_does_not_tell_its_structures_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMBENCH_CACHE", str(tmp_path))
    source = tmp_path / "plain.cpp"
    source.write_text('extern "C" void advance() {}\n')
    with pytest.raises(NotApplicable, match="does not tell the sizes of its structures"):
        fused.require_same_structures(library(source), [Other])


FUNCTIONS = """
#include "kernel.hpp"
using namespace membench;
extern "C" void exponentials(float* at, Index size) {
    for (Index k = 0; k < size; k += LANES) lanes(at + k) = exponential(lanes(at + k));
}
extern "C" void logarithms(float* at, Index size) {
    for (Index k = 0; k < size; k += LANES) lanes(at + k) = logarithm(lanes(at + k));
}
"""


def test_functions_are_as_accurate_as_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMBENCH_CACHE", str(tmp_path))
    source = tmp_path / "functions.cpp"
    source.write_text(FUNCTIONS)
    compiled = library(source)
    values = aligned(80_000, np.float32)
    for low, high, error in [(-20, 20, 2e-7), (-64, 88, 4e-7)]:
        values[:] = np.linspace(low, high, values.size)
        exact = np.exp(values.astype(np.float64))
        compiled.exponentials(ctypes.c_void_p(values.ctypes.data), ctypes.c_int64(values.size))
        assert np.abs(values / exact - 1).max() < error
    values[:] = np.geomspace(1e-30, 1e30, values.size)
    exact = np.log(values.astype(np.float64))
    compiled.logarithms(ctypes.c_void_p(values.ctypes.data), ctypes.c_int64(values.size))
    assert (np.abs(values - exact) / np.maximum(1, np.abs(exact))).max() < 1e-7
