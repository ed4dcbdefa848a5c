from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from membench.engine import general
from membench.engine.general import GeneralTrainer, why_not_batched
from membench.engine.trainer import Batches
from membench.interface.facts import Facts

N, S, A, T = 6, 2, 4, 20


class Model(nn.Module):
    """A small model with everything that a trainer has to carry: weights, a buffer and a frozen parameter."""

    def __init__(self, seed: int, extra: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.word = nn.Embedding(N, 4)
        self.frozen = nn.Parameter(torch.randn(8, 8), requires_grad=False)
        self.register_buffer("shift", torch.randn(8))
        self.extra = extra or nn.Identity()
        self.out = nn.Linear(8, A)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.word(tokens).flatten(1) @ self.frozen + self.shift)
        logits: torch.Tensor = self.out(self.extra(hidden))
        return logits


def make_facts(seed: int, dense: bool = False) -> Facts:
    rng = np.random.default_rng(seed)
    ranks = np.sort(rng.choice(N**S, T, replace=False))
    inputs = np.stack(np.unravel_index(ranks, (N,) * S), axis=1).astype(np.int64)
    prior = rng.dirichlet(np.ones(T))
    targets = rng.dirichlet(np.ones(A), T) if dense else rng.integers(A, size=T)
    return Facts(inputs, targets, prior, N, A)


def betas(count: int) -> Any:
    return np.array([[0.9, 0.99]] * count, dtype=np.float32)


def reference(
    module: nn.Module, facts: Facts, rates: Any, batches: Any = None
) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The same training by torch's own Adam, one model at a time."""
    adam = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], betas=(0.9, 0.99))
    inputs, prior = torch.from_numpy(facts.inputs), torch.from_numpy(facts.prior).float()
    targets = torch.from_numpy(facts.targets)
    losses = []
    for step, rate in enumerate(rates):
        if batches is None:
            answer = targets if facts.is_association else targets.float()
            loss = (prior * nn.functional.cross_entropy(module(inputs), answer, reduction="none")).sum()
        else:
            contexts, labels = batches[0][step], batches[1][step]
            loss = nn.functional.cross_entropy(module(inputs[contexts]), torch.from_numpy(labels))
        adam.param_groups[0]["lr"] = float(rate)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return {name: value.detach().clone() for name, value in module.state_dict().items()}, losses


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("replicas", [1, 3])
def test_it_trains_as_torch_does(dense: bool, replicas: int) -> None:
    facts = [make_facts(r, dense) for r in range(replicas)]
    rates = np.tile(np.linspace(0.05, 0.01, 12, dtype=np.float32), (replicas, 1))
    trainer = GeneralTrainer([Model(r) for r in range(replicas)], facts, betas(replicas))
    first, second = trainer.advance(rates[:, :5]), trainer.advance(rates[:, 5:])  # the moments carry over
    for r in range(replicas):
        state, losses = reference(Model(r), facts[r], rates[r])
        assert np.concatenate([first.loss[r], second.loss[r]]) == pytest.approx(losses, rel=1e-4)
        assert trainer.state(r).keys() == state.keys()
        for name, value in state.items():
            torch.testing.assert_close(trainer.state(r)[name], value, rtol=1e-3, atol=2e-5)


def test_sampled_batches_train_as_torch_does() -> None:
    rng = np.random.default_rng(0)
    contexts, labels = rng.integers(T, size=(2, 6, 5)), rng.integers(A, size=(2, 6, 5))
    facts, rates = [make_facts(r) for r in range(2)], np.full((2, 6), 0.02, dtype=np.float32)
    trainer = GeneralTrainer([Model(r) for r in range(2)], facts, betas(2))
    progress = trainer.advance(rates, Batches(contexts, labels))
    assert np.isfinite(progress.accuracy).all()
    for r in range(2):
        state, losses = reference(Model(r), facts[r], rates[r], (contexts[r], labels[r]))
        assert progress.loss[r] == pytest.approx(losses, rel=1e-4)
        torch.testing.assert_close(trainer.state(r)["out.weight"], state["out.weight"], rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("replicas", [1, 3])
def test_embeddings_are_looked_up_by_index_with_the_same_bits(
    dtype: torch.dtype, replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained() -> tuple[GeneralTrainer, list[bytes]]:
        made = [Model(seed).to(dtype) for seed in range(replicas)]
        trainer = GeneralTrainer(made, [make_facts(0)] * replicas, betas(replicas))
        trainer.advance(np.full((replicas, 30), 0.01, np.float32))
        assert all(isinstance(model.word, nn.Embedding) for model in made)
        states = [trainer.state(row) for row in range(replicas)]
        return trainer, [value.double().numpy().tobytes() for state in states for value in state.values()]

    trainer, by_index = trained()
    assert type(trainer._lanes[0].module.word) is general._Table
    monkeypatch.setattr(general, "_look_up_by_index", lambda module: None)
    trainer, plain = trained()
    assert type(trainer._lanes[0].module.word) is nn.Embedding
    assert by_index == plain


def test_only_plain_embeddings_are_looked_up_by_index() -> None:
    class Own(nn.Embedding):
        pass

    parts = [nn.Embedding(N, 4, padding_idx=0), nn.Embedding(N, 4, max_norm=1.0), nn.Embedding(N, 4, sparse=True),
             nn.Embedding(N, 4, scale_grad_by_freq=True), Own(N, 4)]  # fmt: skip
    module = nn.ModuleList(parts)
    before = list(map(type, parts))
    general._look_up_by_index(module)
    assert list(map(type, parts)) == before


def test_chunks_accumulate_the_same_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = np.full((2, 4), 0.02, dtype=np.float32)
    facts = [make_facts(r) for r in range(2)]
    whole = GeneralTrainer([Model(r) for r in range(2)], facts, betas(2))
    seen = whole.advance(rates)
    cut = GeneralTrainer([Model(r) for r in range(2)], facts, betas(2))
    cut._lanes[0].rows_at_once = 7
    assert cut.advance(rates).loss == pytest.approx(seen.loss, rel=1e-5)
    torch.testing.assert_close(cut.state(1)["out.weight"], whole.state(1)["out.weight"], rtol=1e-4, atol=1e-5)


def test_memory_decides_how_many_contexts_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = [make_facts(0)]
    assert GeneralTrainer([Model(0)], facts, betas(1))._lanes[0].rows_at_once == T
    monkeypatch.setattr(general, "CHUNK_BYTES", 0)
    monkeypatch.setattr(general, "LEAST_ROWS", 7)
    assert GeneralTrainer([Model(0)], facts, betas(1))._lanes[0].rows_at_once == 7


def test_a_replica_without_a_rate_is_left_alone() -> None:
    trainer = GeneralTrainer([Model(0), Model(1)], [make_facts(0), make_facts(1)], betas(2))
    rates = np.array([[0.01] * 3, [0.0] * 3], dtype=np.float32)
    before = trainer.state(1)["out.weight"]
    trainer.advance(rates)
    assert torch.equal(trainer.state(1)["out.weight"], before)


class Rescale(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if bool(x.sum() > 0) else x  # control flow that depends on data


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (nn.Dropout(0.5), "'extra' is dropout"),
        (nn.BatchNorm1d(8), "'extra' is batch norm"),
        (Rescale(), "branches on the values of a tensor"),
        (Counting(), "changes its own 'extra.calls'"),
    ],
)
def test_what_cannot_be_batched_is_trained_one_by_one_and_says_why(extra: nn.Module, words: str) -> None:
    assert words in str(why_not_batched(Model(0, extra), make_facts(0)))
    notes: list[str] = []
    trainer = GeneralTrainer(
        [Model(r, extra) for r in range(2)], [make_facts(r) for r in range(2)], betas(2), notes.append
    )
    progress = trainer.advance(np.full((2, 30), 0.05, dtype=np.float32))
    assert words in notes[0]
    assert (progress.loss[:, -1] < progress.loss[:, 0]).all()


def test_plain_modules_are_batched() -> None:
    assert why_not_batched(Model(0), make_facts(0)) is None


def test_the_decision_to_compile_follows_from_the_planned_work_and_not_from_a_clock() -> None:
    lane = GeneralTrainer([Model(0)], [make_facts(0)], betas(1))._lanes[0]
    assert lane.estimate(200) == 2 * lane.estimate(100) > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
def test_compiled_training_is_the_same_training() -> None:
    rates, facts = np.full((2, 5), 0.02, dtype=np.float32), [make_facts(r) for r in range(2)]
    notes: list[str] = []
    plain = GeneralTrainer([Model(r) for r in range(2)], facts, betas(2))
    compiled = GeneralTrainer([Model(r) for r in range(2)], facts, betas(2), notes.append, compiling="on")
    assert compiled.advance(rates).loss == pytest.approx(plain.advance(rates).loss, rel=1e-4)
    assert set(notes) == {"compiled"}


def test_what_cannot_be_compiled_is_trained_all_the_same_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> Any:
        def call(*inputs: Any) -> Any:
            raise RuntimeError("no compiler here")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    notes: list[str] = []
    trainer = GeneralTrainer([Model(0)], [make_facts(0)], betas(1), notes.append, compiling="on")
    assert np.isfinite(trainer.advance(np.full((1, 2), 0.01, dtype=np.float32)).loss).all()
    assert notes == ["not compiled: RuntimeError: no compiler here"]


def test_a_replica_at_rest_leaves_the_computation_of_the_others() -> None:
    facts, rates = [make_facts(0)] * 3, np.full((3, 6), 0.01, dtype=np.float32)
    resting = rates.copy()
    resting[1] = 0
    found = []
    for second in (rates, resting):
        trainer = GeneralTrainer([Model(seed) for seed in range(3)], facts, betas(3))
        trainer.advance(rates)
        before = trainer.state(1)
        trainer.advance(second)
        found.append(trainer)
    whole, parted = found
    assert [lane.rows for lane in parted._lanes] == [[0, 2], [1]]
    assert all(torch.equal(value, before[name]) for name, value in parted.state(1).items())
    for row in (0, 2):
        states = parted.state(row), whole.state(row)
        assert all(torch.allclose(states[0][name], states[1][name], atol=1e-5) for name in states[0])
