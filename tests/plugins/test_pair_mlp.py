"""The pair MLP: its forward pass, its constructions, and what they guarantee."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from membench.api import Facts, NotApplicable, Setting, Shape
from membench_pair_mlp import ARCHITECTURE, PairMLPConfig
from membench_pair_mlp.bounds import bounds
from membench_pair_mlp.model import PairMLP

BOUNDS = {bound.name: bound for bound in bounds()}


def random_facts(N: int, A: int, T: int, seed: int = 0) -> Facts:
    rng = np.random.default_rng(seed)
    ranks = np.sort(rng.permutation(N * N)[:T])
    inputs = np.stack([ranks // N, ranks % N], axis=1).astype(np.int64)
    return Facts(inputs, rng.integers(A, size=T), np.full(T, 1 / T), N, A)


def construct(name: str, facts: Facts, w: int, **options: Any) -> tuple[PairMLP, dict[str, Any]]:
    model = PairMLP(facts.shape, PairMLPConfig(w=w, **options)).double()
    return model, dict(ARCHITECTURE.constructions[name](model, facts))


def right(model: PairMLP, facts: Facts) -> int:
    """Facts that the model answers after rounding its weights to float32, ties counting as wrong."""
    with torch.no_grad():
        logits = model.float()(torch.from_numpy(facts.inputs))
    best = logits.topk(2, dim=1)
    strict = best.values[:, 0] > best.values[:, 1]
    return int((strict & (best.indices[:, 0] == torch.from_numpy(facts.targets))).sum())


def test_it_adds_rows_and_cuts_below_zero() -> None:
    model = PairMLP(Shape(5, 2, 3), PairMLPConfig(w=4))
    first, second = (table.weight.detach().numpy() for table in model.tables)
    hidden = np.maximum(first[1] + second[4], 0)
    expected = model.unembed.weight.detach().numpy() @ hidden
    np.testing.assert_allclose(model(torch.tensor([[1, 4]])).detach().numpy()[0], expected, rtol=1e-5)


@pytest.mark.parametrize(
    "option", [{"mixing": "multiply"}, {"activation": "gelu"}, {"bias": True}, {"gate": True}, {"residual": True},
               {"norm": True}],
)  # fmt: skip
def test_every_option_changes_the_function(option: dict[str, Any]) -> None:
    tokens = torch.tensor([[0, 1], [2, 3], [4, 4]])
    logits = []
    for extra in ({}, option):
        torch.manual_seed(0)
        model = PairMLP(Shape(5, 2, 3), PairMLPConfig(w=4, **extra))
        if model.bias is not None:
            torch.nn.init.ones_(model.bias)
        logits.append(model(tokens))
    assert not torch.allclose(*logits)


@pytest.mark.parametrize("N", [2, 50, 128])
def test_the_selector_holds_all_pairs_with_one_neuron_more_than_tokens(N: int) -> None:
    facts = random_facts(N, N, N * N)
    model, report = construct("selector", facts, N + 1)
    assert sum(weight.numel() for weight in model.parameters()) == 3 * N * (N + 1)
    assert report["certified"] == report["float32_memorised"] == right(model, facts) == N * N


@pytest.mark.slow
def test_the_selector_holds_all_pairs_of_256_tokens() -> None:
    facts = random_facts(256, 256, 256**2)
    assert right(construct("selector", facts, 257)[0], facts) == 256**2


# What the authors of the challenge reach by hand with 0.9 of the facts right is 92 and 264 facts for these sizes.
@pytest.mark.parametrize(("d", "count"), [(16, 360), (32, 1700)])
def test_gates_hold_several_times_what_was_published(d: int, count: int) -> None:
    facts = random_facts(2 * d, d, count)
    model, report = construct("gates", facts, d)
    assert report["certified"] == right(model, facts) == count


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 9), st.integers(2, 6), st.integers(3, 8), st.integers(1, 81), st.integers(0, 99))
def test_gates_keep_what_the_guarantee_says(N: int, A: int, w: int, T: int, seed: int) -> None:
    facts = random_facts(N, A, min(T, N * N), seed)
    model, report = construct("gates", facts, w)
    setting = Setting(ARCHITECTURE.name, model.config, facts)
    assert report["certified"] == report["memorised"]
    assert right(model, facts) >= report["memorised"] >= len(facts) * 0.3 * min(1, (w - 1) / N)
    if report["method"] == "gates":
        guaranteed = BOUNDS["pair-gates"].value(setting)
        # the selector may hold more than gates do; it is the other construction
        assert report["memorised"] >= guaranteed or guaranteed == BOUNDS["pair-selector"].value(setting)


def test_too_many_facts_are_held_in_part() -> None:
    facts = random_facts(32, 16, 700)
    model, report = construct("gates", facts, 16)
    assert 450 < report["certified"] == report["memorised"] <= 32 * 15
    assert right(model, facts) >= report["certified"]


def test_the_guarantee_of_the_selector_counts_facts() -> None:
    inputs = np.array([[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [0, 2]])
    facts = Facts(inputs, np.zeros(6, dtype=np.int64), np.full(6, 1 / 6), 3, 4)
    values = [BOUNDS["pair-selector"].value(Setting("pair-mlp", PairMLPConfig(w=w), facts)) for w in (1, 2, 3, 4, 9)]
    assert values == [0, 3, 5, 6, 6]


@pytest.mark.parametrize(
    ("name", "w", "options", "words"),
    [
        ("selector", 5, {}, "w=5, and a selector of 6 tokens needs w >= 7"),
        ("gates", 9, {"gate": True}, "only the plain model"),
        ("gates", 1, {}, "w >= 2"),
    ],
)
def test_what_cannot_be_constructed_says_why(name: str, w: int, options: dict[str, Any], words: str) -> None:
    with pytest.raises(NotApplicable, match=words):
        construct(name, random_facts(6, 6, 36), w, **options)


def test_constructions_are_for_pairs() -> None:
    facts = Facts(np.array([[0, 1, 1]]), np.array([0]), np.ones(1), 2, 2)
    with pytest.raises(NotApplicable, match="S=3"):
        construct("gates", facts, 4)
