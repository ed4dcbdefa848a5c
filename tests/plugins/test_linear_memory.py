"""The linear associative memory: its frozen vectors, and the rules that fill it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from membench.api import Facts, Shape
from membench_linear_memory import ARCHITECTURE, LinearMemoryConfig
from membench_linear_memory.model import LinearMemory

HEBB, PSEUDO_INVERSE = ARCHITECTURE.constructions["hebb"], ARCHITECTURE.constructions["pseudo-inverse"]


def build(shape: Shape, d: int, seed: int = 0) -> LinearMemory:
    torch.manual_seed(seed)
    return LinearMemory(shape, LinearMemoryConfig(d=d)).double()


def random_facts(shape: Shape, count: int, seed: int = 0, distributions: bool = False, even: bool = True) -> Facts:
    rng = np.random.default_rng(seed)
    every = np.array(list(itertools.product(range(shape.vocab), repeat=shape.length)))
    inputs = rng.permutation(every)[:count]
    labels = rng.integers(shape.answers, size=count)
    targets = rng.dirichlet(np.ones(shape.answers), size=count) if distributions else labels
    prior = np.full(count, 1 / count) if even else rng.dirichlet(np.ones(count))
    return Facts(inputs, targets, prior, shape.vocab, shape.answers)


def accuracy(memory: LinearMemory, facts: Facts) -> float:
    answers = memory(torch.from_numpy(facts.inputs)).argmax(1).numpy()
    return float((answers == facts.targets).mean())


def every_context(memory: LinearMemory, shape: Shape) -> Tensor:
    return memory.contexts(torch.tensor(list(itertools.product(range(shape.vocab), repeat=shape.length))))


def test_only_the_matrix_is_trained() -> None:
    memory = build(Shape(50, 2, 50), 32)
    assert {name: tuple(p.shape) for name, p in memory.named_parameters()} == {"weight": (32, 32)}
    assert {name: tuple(b.shape) for name, b in memory.named_buffers()} == {"phases": (2, 50, 32), "outputs": (50, 32)}
    assert set(memory.state_dict()) == {"weight", "phases", "outputs"}


@torch.no_grad()
def test_logits_are_products_of_frozen_unit_vectors_and_the_matrix() -> None:
    memory = build(Shape(5, 3, 5), 4)
    tokens = torch.tensor([[0, 4, 2], [2, 4, 0]])
    x = memory.contexts(tokens)
    angles = [[memory.phases[s, t] for s, t in enumerate(context)] for context in tokens.tolist()]
    bound = torch.stack([torch.cos(a + b + c) for a, b, c in angles])
    torch.testing.assert_close(x, bound / bound.norm(dim=1, keepdim=True))
    torch.testing.assert_close(memory.outputs.norm(dim=1), torch.ones(5, dtype=torch.float64), rtol=1e-6, atol=1e-6)
    expected = torch.stack([memory.outputs @ (memory.matrix @ one) for one in x])
    torch.testing.assert_close(memory(tokens), expected)


@pytest.mark.parametrize("shape", [Shape(50, 2, 50), Shape(13, 3, 13)])
@pytest.mark.parametrize("d", [10, 32])
def test_contexts_have_vectors_as_if_drawn_for_each(shape: Shape, d: int) -> None:
    vectors = every_context(build(shape, d), shape)
    values = torch.linalg.svdvals(vectors)
    assert values[-1] / values[0] > 0.7  # all directions alike, as for independent vectors
    cosines = (vectors @ vectors.T).fill_diagonal_(0)
    assert float((cosines**2).mean() * d) == pytest.approx(1, abs=0.02)  # 1/d on average between independent ones
    assert float(cosines.abs().max()) < 0.9999  # and no two the same


def test_contexts_that_share_a_token_are_as_far_apart_as_others() -> None:
    vectors = every_context(build(Shape(50, 2, 50), 32), Shape(50, 2, 50)).reshape(50, 50, 32)
    for same in (vectors, vectors.transpose(0, 1)):
        cosines = same @ same.mT  # [shared token, other token, other token]
        others = cosines[:, ~torch.eye(50, dtype=torch.bool)]
        assert float((others**2).mean() * 32) == pytest.approx(1, abs=0.05)


def test_hebb_is_the_sum_of_outer_products() -> None:
    memory, facts = build(Shape(6, 2, 6), 5), random_facts(Shape(6, 2, 6), 7)
    HEBB(memory, facts)
    x = memory.contexts(torch.from_numpy(facts.inputs))
    expected = sum(torch.outer(memory.outputs[label], one) for label, one in zip(facts.targets, x, strict=True))
    torch.testing.assert_close(memory.matrix.detach(), expected)


def test_hebb_weighs_likely_contexts_and_averages_distributions() -> None:
    shape = Shape(6, 2, 4)
    memory, facts = build(shape, 5), random_facts(shape, 7, distributions=True, even=False)
    HEBB(memory, facts)
    x = memory.contexts(torch.from_numpy(facts.inputs))
    expected = torch.zeros(5, 5, dtype=torch.float64)
    for i, k in itertools.product(range(7), range(4)):
        expected += 7 * facts.prior[i] * facts.targets[i, k] * torch.outer(memory.outputs[k], x[i])
    torch.testing.assert_close(memory.matrix.detach(), expected)


@pytest.mark.parametrize("answers", [2, 50, 400])
@pytest.mark.parametrize("seed", range(3))
def test_the_pseudo_inverse_recalls_d_contexts_exactly(seed: int, answers: int) -> None:
    shape = Shape(50, 2, answers)
    memory, facts = build(shape, 20, seed), random_facts(shape, 20, seed)
    report = PSEUDO_INVERSE(memory, facts)
    recalled = memory.contexts(torch.from_numpy(facts.inputs)) @ memory.matrix.T
    torch.testing.assert_close(recalled, memory.outputs[facts.targets], rtol=1e-8, atol=1e-8)
    assert accuracy(memory, facts) == 1
    assert report["rank"] == 20
    assert 1 < report["condition"] < 1e6


def test_with_more_than_d_contexts_the_rank_is_d_and_recall_is_not_exact() -> None:
    memory, facts = build(Shape(50, 2, 50), 10), random_facts(Shape(50, 2, 50), 100)
    assert PSEUDO_INVERSE(memory, facts)["rank"] == 10
    recalled = memory.contexts(torch.from_numpy(facts.inputs)) @ memory.matrix.T
    assert (recalled - memory.outputs[facts.targets]).abs().max() > 0.1
    assert 0.02 < accuracy(memory, facts) < 0.9


def test_hebb_recalls_fewer_contexts_than_the_pseudo_inverse() -> None:
    memory, facts = build(Shape(50, 2, 50), 40), random_facts(Shape(50, 2, 50), 70)
    HEBB(memory, facts)
    by_hebb = accuracy(memory, facts)
    PSEUDO_INVERSE(memory, facts)
    assert 0.5 < by_hebb < accuracy(memory, facts)


def test_a_trained_matrix_recalls_more_than_d_contexts() -> None:
    memory, facts = build(Shape(50, 2, 50), 10), random_facts(Shape(50, 2, 50), 22)
    inputs, labels = torch.from_numpy(facts.inputs), torch.from_numpy(facts.targets)
    descent = torch.optim.LBFGS(memory.parameters(), max_iter=200, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        descent.zero_grad()
        value = torch.nn.functional.cross_entropy(memory(inputs), labels)
        value.backward()
        return value

    descent.step(loss)
    assert accuracy(memory, facts) == 1


@pytest.mark.parametrize(("parameters", "d"), [(1, 1), (99, 9), (100, 10), (1024, 32)])
def test_a_budget_is_a_square(parameters: int, d: int) -> None:
    assert ARCHITECTURE.for_budget is not None
    assert ARCHITECTURE.for_budget(Shape(50, 2, 50), parameters) == LinearMemoryConfig(d=d)
