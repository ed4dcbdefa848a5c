"""Modules as other people write them, each with one construct that a trainer may trip over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from membench.api import Architecture
from membench.engine.protocols.protocol import get_protocol
from membench.engine.workbench import Outcome, Workbench
from membench.interface.facts import Shape
from membench.interface.registry import Registry
from membench.measure.evaluate import InvalidOutput, evaluate
from membench.measure.frozen import UnsavedState
from membench.measure.size import count_without_gradient, measure_size
from membench.records import weights

REGISTRY = Registry()
N, D = 5, 6
QUICK, CONVERGED = {"steps": 12}, {"steps": 8, "rounds": 2}


class Plain(nn.Module):
    """An MLP over both tokens; what is odd about a module comes between its two layers."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.word = nn.Embedding(shape.vocab, D)
        self.hidden = nn.Linear(shape.length * D, D)
        self.out = nn.Linear(D, shape.answers, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.out(self.odd(torch.tanh(self.hidden(self.word(tokens).flatten(1)))))
        return logits

    def odd(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Tied(Plain):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.out.weight = self.word.weight


class SharedModule(Plain):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.layers = nn.ModuleList([nn.Linear(D, D)] * 3)

    def odd(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


class Complex(Plain):
    phase: torch.Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.turn = nn.Parameter(torch.randn(D, D, dtype=torch.complex64))
        self.register_buffer("phase", torch.exp(1j * torch.arange(D)))

    def odd(self, x: torch.Tensor) -> torch.Tensor:
        return ((x * self.phase) @ self.turn).real


class InnerGrad(Plain):
    def odd(self, x: torch.Tensor) -> torch.Tensor:
        gradient: torch.Tensor = torch.func.grad(lambda y: (y**3).sum())(x)
        return x - 0.1 * gradient


class InnerAutograd(Plain):
    def odd(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            y = x if x.requires_grad else x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad((y**3).sum(), y, create_graph=True)
        return x - 0.1 * gradient


class Checkpointed(Plain):
    def odd(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = checkpoint(torch.tanh, x, use_reentrant=True)
        return y


class Dropout(Plain):
    def odd(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.2, self.training)


class NumpyNoise(Plain):
    def odd(self, x: torch.Tensor) -> torch.Tensor:
        return x + float(np.random.standard_normal()) if self.training else x


class Branch(Plain):
    def odd(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0.9 if x.mean().item() > 0 else x


class EveryPosition(Plain):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.mix = nn.GRU(D, D, batch_first=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.out(self.mix(self.word(tokens))[0])
        return logits


class PlainTable(Plain):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.table = torch.randn(D)

    def odd(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.table


class UnsavedBuffer(PlainTable):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        del self.table
        self.register_buffer("table", torch.randn(D), persistent=False)


class Cache(Plain):
    """What is learned in training mode, and kept where no state dict has it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.kept = torch.zeros(D)

    def odd(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.kept = 0.9 * self.kept + x.detach().mean(0) + 0.1
        return x + self.kept


class Counter(Plain):
    calls = 0

    def odd(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * (1 + 1 / self.calls)


class Noise(Plain):
    def odd(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * torch.randn_like(x)


class OtherAnswers(Plain):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.out = nn.Linear(D, shape.vocab, bias=False)


def bench(build: Callable[[Shape], nn.Module], **task_options: Any) -> Workbench:
    class Config:
        pass

    architecture = Architecture(
        name="toy", summary="toy", reference="none", config=Config, build=lambda shape, config: build(shape)
    )
    task = REGISTRY.task("bigram")
    return Workbench(architecture, Config(), task, task.config(**{"N": N, **task_options}))


def train(workbench: Workbench, name: str, *seeds: int) -> list[Outcome]:
    protocol = get_protocol(name)
    options = QUICK if name == "quick" else CONVERGED
    return protocol.find_weights(workbench, protocol.config(**options), seeds)


def same(one: Outcome, other: Outcome) -> bool:
    pairs = [(one.module, other.module), (one.least_loss, other.least_loss)]
    states = [(a.state_dict(), b.state_dict()) for a, b in pairs if a is not None and b is not None]
    return all(torch.equal(a[name], b[name]) for a, b in states for name in a) and one.trace == other.trace


@pytest.mark.parametrize("protocol", ["quick", "converged"])
@pytest.mark.parametrize(
    "build", [Tied, SharedModule, Complex, InnerGrad, InnerAutograd, Checkpointed, Branch, EveryPosition]
)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # torch's, when a checkpoint is only asked
def test_it_learns_and_its_weights_come_back_from_a_file(build: type[nn.Module], protocol: str) -> None:
    workbench = bench(build)
    fresh = evaluate(workbench.model(0), workbench.facts(0), 1)
    (outcome,) = train(workbench, protocol, 0)
    found = evaluate(outcome.module, outcome.facts, 1)
    assert found.accuracy > fresh.accuracy or found.kl < fresh.kl
    state = outcome.module.state_dict()
    loaded = weights.from_bytes(weights.to_bytes({name: value.clone() for name, value in state.items()}))
    assert {name: value.dtype for name, value in loaded.items()} == {name: v.dtype for name, v in state.items()}
    assert evaluate(workbench.loaded(0, loaded), outcome.facts, 1) == found
    count_without_gradient(outcome.module, torch.from_numpy(outcome.facts.inputs[:8]))


@pytest.mark.parametrize("protocol", ["quick", "converged"])
@pytest.mark.parametrize("build", [Plain, Dropout, NumpyNoise, Tied])
def test_a_trial_has_the_same_bits_whatever_is_trained_beside_it_and_whatever_was_drawn_before(
    build: type[nn.Module], protocol: str
) -> None:
    together = train(bench(build, T0=17), protocol, 0, 1, 2)
    torch.rand(3)
    np.random.random(3)
    apart = [*train(bench(build, T0=17), protocol, 2, 1), *train(bench(build, T0=17), protocol, 0)]
    assert [one.seed for one in apart] == [2, 1, 0]
    assert all(same(one, other) for one, other in zip(together, reversed(apart), strict=True))


def test_training_leaves_random_generators_as_they_were() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    expected = torch.rand(1), np.random.random()
    torch.manual_seed(1)
    np.random.seed(1)
    train(bench(Dropout), "quick", 0)
    assert (torch.rand(1), np.random.random()) == expected


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (PlainTable, "not in the state_dict \\(perhaps 'table'\\)"),
        (UnsavedBuffer, "not in the state_dict \\(perhaps 'table'\\)"),
        (Cache, "not in the state_dict \\(perhaps 'kept'\\)"),
        (Counter, "asked the same questions twice"),
        (Noise, "must neither draw random numbers"),
    ],
)
@pytest.mark.parametrize("protocol", ["quick", "converged"])
def test_a_model_that_answers_by_more_than_its_weights_gets_no_number(
    build: type[nn.Module], words: str, protocol: str
) -> None:
    with pytest.raises(UnsavedState, match=words):
        train(bench(build), protocol, 0)


def test_a_tied_tensor_is_counted_and_written_once() -> None:
    tied, apart = bench(Tied), bench(Plain)
    table = N * D
    sizes = [measure_size(one.model(0), one.shape).parameters for one in (tied, apart)]
    assert sizes[1] - sizes[0] == table
    files = [weights.to_bytes(one.model(0).state_dict()) for one in (tied, apart)]
    assert len(files[1]) - len(files[0]) == pytest.approx(4 * table, abs=64)  # but for the header


def test_a_complex_number_is_two_parameters_in_either_precision() -> None:
    workbench = bench(Complex)
    plain = measure_size(bench(Plain).model(0), workbench.shape)
    for dtype, bits in (("float32", 32), ("float64", 64)):
        size = measure_size(workbench.model(0, dtype), workbench.shape)
        assert size.parameters == plain.parameters + 2 * D * D
        assert size.learned_bits == bits * size.parameters


def test_complex_training_is_that_of_the_real_pairs() -> None:
    class Pairs(Complex):
        def __init__(self, shape: Shape) -> None:
            super().__init__(shape)
            self.pair = nn.Parameter(torch.view_as_real(self.turn.detach()).clone())
            del self.turn

        def odd(self, x: torch.Tensor) -> torch.Tensor:
            return ((x * self.phase) @ torch.view_as_complex(self.pair)).real

    one, other = (train(bench(build), "quick", 0)[0].module.state_dict() for build in (Complex, Pairs))
    torch.testing.assert_close(torch.view_as_real(one["turn"]), other["pair"], rtol=1e-4, atol=1e-5)


def test_a_record_says_that_the_last_position_was_measured() -> None:
    workbench = bench(EveryPosition)
    train(workbench, "quick", 0)
    assert workbench.notes == ["the model answers at every position, and the last one is measured"]


def test_a_model_with_another_number_of_answers_is_told_where_to_look() -> None:
    with pytest.raises(InvalidOutput, match=r"it has 5 answers and the task 3; build its output with shape\.answers"):
        train(bench(OtherAnswers, A=3), "quick", 0)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (SharedModule, "'layers.1' and 'layers.0' are one module"),
        (Complex, "'turn' is complex"),
        (InnerAutograd, "takes gradients by torch.autograd"),
        (Dropout, "draws random numbers"),
        (Cache, "changes its own 'kept'"),
    ],
)
def test_why_settings_are_tried_one_by_one_is_noted(build: type[nn.Module], words: str) -> None:
    workbench = bench(build)
    workbench.trainer([0, 0], [(0.9, 0.9)] * 2, planned=1)
    (note,) = workbench.notes
    assert note.startswith("replicas trained one by one: ")
    assert words in note


def test_a_file_of_weights_with_a_name_twice_is_refused() -> None:
    from safetensors.torch import save

    tensors = {"a": torch.zeros(2), "b": torch.ones(2)}
    for metadata in ({"same": '{"b": "a"}'}, {"same": '{"c": "d"}'}, {"complex": '["a", "e"]'}, {"same": "[1]"}):
        with pytest.raises(ValueError, match="not a whole safetensors file"):
            weights.from_bytes(save(tensors, metadata))
