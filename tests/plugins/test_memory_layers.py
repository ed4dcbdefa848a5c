"""Mixtures of experts, product-key memory, Hopfield layer and hashed n-grams: what each computes, and its sizes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from membench.api import Architecture, BudgetTooSmall, Facts, NotApplicable, Setting, Shape
from membench_hashed_ngram import ARCHITECTURE as HASHED
from membench_hashed_ngram import HashedNgramConfig
from membench_hashed_ngram.bounds import bounds
from membench_hashed_ngram.hashing import slot
from membench_hopfield import ARCHITECTURE as HOPFIELD
from membench_hopfield import HopfieldConfig
from membench_hopfield import count as count_hopfield
from membench_mlp_memory import ARCHITECTURE as MLP_MEMORY
from membench_mlp_memory import MLPMemoryConfig
from membench_moe import ARCHITECTURE as MOE
from membench_moe import MoEConfig
from membench_moe import count as count_moe
from membench_product_key import ARCHITECTURE as PRODUCT_KEY
from membench_product_key import ProductKeyConfig
from membench_product_key import count as count_product_key

SHAPE = Shape(7, 3, 5)
TOKENS = torch.randint(7, (20, 3), generator=torch.Generator().manual_seed(0))
BOUNDS = {bound.name: bound for bound in bounds()}


def built(architecture: Architecture[Any], shape: Shape = SHAPE, **options: Any) -> Any:
    torch.manual_seed(0)
    return architecture.build(shape, architecture.config(**options))


def stream(model: Any, context: torch.Tensor) -> torch.Tensor:
    rows = [model.tables[at].weight[token] for at, token in enumerate(context)]
    return torch.stack(rows).sum(0) / math.sqrt(len(rows))


@pytest.mark.parametrize("k", [1, 2, 4])
@torch.no_grad()
def test_experts_answer_for_the_contexts_that_are_sent_to_them(k: int) -> None:
    model = built(MOE, d=6, experts=4, k=k, w=3)
    model.bias.normal_()
    for context, logits in zip(TOKENS, model(TOKENS), strict=True):
        x = stream(model, context)
        scores = model.router @ x
        chosen = scores.argsort(descending=True)[:k]
        update = torch.zeros(6)
        for share, expert in zip(scores[chosen].softmax(0), chosen.tolist(), strict=True):
            neurons = (model.hidden[expert] @ x + model.bias[expert]).clamp(min=0)
            update += share * (model.project[expert] @ neurons)
        torch.testing.assert_close(logits, model.unembed.weight @ (x + update))


def test_an_expert_that_is_not_chosen_learns_nothing_from_a_context() -> None:
    model = built(MOE, d=6, experts=4, k=2, w=40)  # so many neurons that some are active
    chosen = set((model.router @ stream(model, TOKENS[0])).argsort(descending=True)[:2].tolist())
    model(TOKENS[:1]).sum().backward()
    moved = {expert for expert in range(4) if model.project.grad[expert].abs().sum() > 0}
    assert moved == chosen


@pytest.mark.parametrize(("n", "k", "heads"), [(5, 3, 1), (4, 16, 2), (1, 4, 1), (6, 1, 3)])
@torch.no_grad()
def test_a_product_key_memory_reads_the_nearest_of_all_its_slots(n: int, k: int, heads: int) -> None:
    model = built(PRODUCT_KEY, d=6, n=n, k=k, heads=heads)
    for context, logits in zip(TOKENS, model(TOKENS), strict=True):
        x = stream(model, context)
        read = x.clone()
        for head in range(heads):
            left, right = (model.query[head] @ x).split(3)
            keys = model.keys[head]
            scores = torch.stack([keys[0, i] @ left + keys[1, j] @ right for i in range(n) for j in range(n)])
            best = scores.argsort(descending=True)[:k]
            read += scores[best].softmax(0) @ model.values[best]
        torch.testing.assert_close(logits, model.unembed.weight @ read)


@torch.no_grad()
def test_a_hopfield_layer_retrieves_the_nearest_pattern_when_it_is_cold() -> None:
    model = built(HOPFIELD, d=6, M=9, beta=1e4)
    for context, logits in zip(TOKENS, model(TOKENS), strict=True):
        nearest = (model.patterns @ stream(model, context)).argmax()
        torch.testing.assert_close(logits, model.unembed.weight @ model.values[nearest])


@torch.no_grad()
def test_each_update_of_a_hopfield_layer_replaces_its_state() -> None:
    once, twice = (built(HOPFIELD, d=6, M=9, beta=0.7, updates=updates) for updates in (1, 2))
    for context, logits in zip(TOKENS, twice(TOKENS), strict=True):
        state = (0.7 * once.patterns @ stream(once, context)).softmax(0) @ once.patterns
        value = (0.7 * once.patterns @ state).softmax(0) @ once.values
        torch.testing.assert_close(logits, once.unembed.weight @ value)


@pytest.mark.parametrize("shape", [Shape(7, 1, 5), Shape(7, 3, 5), Shape(50, 2, 50)])
def test_parameters_are_counted_as_they_are(shape: Shape) -> None:
    for architecture, config, count in (
        (MOE, MoEConfig(d=6, experts=3, w=5), count_moe),
        (PRODUCT_KEY, ProductKeyConfig(d=6, n=5, heads=2), count_product_key),
        (HOPFIELD, HopfieldConfig(d=5, M=7), count_hopfield),
    ):
        assert sum(p.numel() for p in architecture.build(shape, config).parameters()) == count(shape, config)  # type: ignore[operator]


@pytest.mark.parametrize("architecture", [MOE, PRODUCT_KEY, HOPFIELD, HASHED], ids=lambda one: one.name)
@pytest.mark.parametrize("parameters", [400, 1_001, 3_000, 30_000])
def test_a_budget_is_used_and_kept(architecture: Architecture[Any], parameters: int) -> None:
    assert architecture.for_budget
    for shape in (Shape(20, 2, 20), Shape(40, 3, 4)):
        config = architecture.for_budget(shape, parameters)
        built = sum(p.numel() for p in architecture.build(shape, config).parameters())
        assert 0.5 * parameters < built <= parameters


@pytest.mark.parametrize("architecture", [MOE, PRODUCT_KEY, HOPFIELD, HASHED], ids=lambda one: one.name)
def test_a_budget_that_is_too_small_is_named(architecture: Architecture[Any]) -> None:
    assert architecture.for_budget
    with pytest.raises(BudgetTooSmall):
        architecture.for_budget(Shape(20, 2, 20), 9)


def test_what_cannot_be_built_is_named() -> None:
    with pytest.raises(ValueError, match="k=5 must be at most experts=4"):
        MoEConfig(experts=4, k=5)
    with pytest.raises(ValueError, match="d=7 must be even"):
        ProductKeyConfig(d=7)
    assert MoEConfig(experts=1).k == 1


def facts_of(N: int, S: int, T: int, A: int, seed: int = 0) -> Facts:
    rng = np.random.default_rng(seed)
    inputs = np.array(list(itertools.product(range(N), repeat=S)))[rng.permutation(N**S)[:T]]
    return Facts(inputs.astype(np.int64), rng.integers(A, size=T), np.full(T, 1 / T), N, A)


@pytest.mark.parametrize("M", [1, 64, 97, 1024])
def test_hashes_fall_like_balls_into_bins(M: int) -> None:
    """The slots of all pairs and triples are as full as random ones, by chi squared; and two hashes are unrelated."""
    for N, S in ((50, 2), (13, 3), (2500, 1)):
        contexts = np.array(list(itertools.product(range(N), repeat=S)))
        first, second = (slot(contexts, number, M) for number in (0, 1))
        assert np.array_equal(first, slot(torch.from_numpy(contexts), 0, M).numpy())
        assert first.min() >= 0
        assert first.max() < M
        for cells, slots in ((first, M), (first // 8 * 128 + second // 8, 128 * 128) if M == 1024 else (second, M)):
            counts = np.bincount(cells, minlength=slots)
            expected = len(contexts) / slots
            excess = ((counts - expected) ** 2 / expected).sum() - (slots - 1)
            assert abs(excess) < 5 * math.sqrt(2 * slots)


def test_the_order_of_tokens_counts() -> None:
    pairs = np.array(list(itertools.combinations(range(50), 2)))
    same = slot(pairs, 0, 2**31 - 1) == slot(pairs[:, ::-1], 0, 2**31 - 1)
    assert not same.any()


@pytest.mark.parametrize(("M", "hashes"), [(40, 1), (9, 2), (1, 1), (5000, 1)])
@torch.no_grad()
def test_no_weights_beat_the_collisions(M: int, hashes: int) -> None:
    facts = facts_of(12, 2, 120, 7)
    setting = Setting("hashed-ngram", HashedNgramConfig(M=M, d=3, hashes=hashes), facts)
    limit = BOUNDS["hash-collisions"].value(setting)
    tokens = torch.from_numpy(facts.inputs)
    groups: dict[bytes, list[int]] = {}
    model = built(HASHED, facts.shape, M=M, d=3, hashes=hashes).double()
    answers = model(tokens).numpy().round(6)  # a row's last digits depend on its place in the batch
    for label, logits in zip(facts.targets.tolist(), answers, strict=True):
        groups.setdefault(logits.tobytes(), []).append(label)
    most = sum(max(map(labels.count, labels)) for labels in groups.values())
    assert limit == pytest.approx(most / len(facts))


@pytest.mark.parametrize("M", [1, 30, 100, 1000])
@torch.no_grad()
def test_the_majority_of_each_slot_is_reached_in_float32(M: int) -> None:
    facts = facts_of(20, 2, 300, 256)
    config = HashedNgramConfig(M=M, d=2)
    model = HASHED.build(facts.shape, config).double()
    assert HASHED.constructions["majority"](model, facts)["used"] <= M
    answers = model.float()(torch.from_numpy(facts.inputs)).argmax(1).numpy()
    setting = Setting("hashed-ngram", config, facts)
    reached = float(facts.prior @ (answers == facts.targets))
    assert reached == pytest.approx(BOUNDS["hash-majority"].value(setting))
    assert reached == pytest.approx(BOUNDS["hash-collisions"].value(setting))


def test_what_the_majority_does_not_cover() -> None:
    facts = facts_of(5, 2, 20, 5)
    for options, reason in (({"hashes": 2}, "hashes=2"), ({"d": 1}, "d=1")):
        with pytest.raises(NotApplicable, match=reason):
            HASHED.constructions["majority"](built(HASHED, facts.shape, **options).double(), facts)
        with pytest.raises(NotApplicable, match=reason):
            BOUNDS["hash-majority"].value(Setting("hashed-ngram", HashedNgramConfig(**options), facts))


@pytest.mark.parametrize(("M", "hashes", "A"), [(60, 1, 10), (200, 1, 2), (10, 2, 10), (1, 1, 4)])
def test_balls_in_bins_are_what_random_slots_do(M: int, hashes: int, A: int) -> None:
    facts = facts_of(12, 2, 120, A)
    value = BOUNDS["hash-balls"].value(Setting("hashed-ngram", HashedNgramConfig(M=M, hashes=hashes), facts))
    rng, drawn = np.random.default_rng(0), []
    for _ in range(300):
        counts = np.zeros((M**hashes, A))
        np.add.at(counts, (rng.integers(M**hashes, size=120), rng.integers(A, size=120)), 1)
        drawn.append(counts.max(axis=1).sum() / 120)
    assert value == pytest.approx(np.mean(drawn), abs=4 * np.std(drawn) / math.sqrt(300) + 1e-9)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("moe", {"d": 8, "experts": 4, "w": 8}),
        ("product-key", {"d": 8, "n": 8}),
        ("hopfield", {"d": 8, "M": 40}),
        ("hashed-ngram", {"d": 4}),
    ],
)
def test_they_learn(name: str, options: dict[str, int], tmp_path: Any) -> None:
    import membench

    run = {"T": {"N": 6}, "protocol": "quick", "P": {"steps": 200}, "out": tmp_path, "progress": False}
    (row,) = membench.run(name, "bigram", M=options, seeds=1, **run).summary().to_dict("records")
    assert row["accuracy"] > 0.85
    (record,) = membench.load(tmp_path).records
    assert record.trace["paths"] == ["general"]
    assert not any("one by one" in note for note in record.trace["notes"])


def test_experts_of_an_mlp_memory_share_its_neurons() -> None:
    shape = Shape(7, 3, 5)
    plain, mixture = (built(MLP_MEMORY, shape, d=6, m=12, experts=K) for K in (1, 3))
    assert sum(one.numel() for one in mixture.parameters()) == sum(one.numel() for one in plain.parameters()) + 6 * 3
    with torch.no_grad():
        mixture.gate.zero_()  # all shares are alike
        mixture.phases, mixture.outputs = plain.phases, plain.outputs
        mixture.first.copy_(plain.first)
        mixture.second.copy_(3 * plain.second)
    torch.testing.assert_close(mixture(TOKENS), plain(TOKENS))
    with pytest.raises(ValueError, match="experts=5 does not divide the m=12 neurons"):
        MLPMemoryConfig(m=12, experts=5)
