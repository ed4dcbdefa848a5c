"""Constructions of the attention-only transformer, certified by the ordinary model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from membench.api import Facts, NotApplicable
from membench.interface.facts import draw_facts
from membench.measure.evaluate import evaluate
from membench_aot import ARCHITECTURE, AttentionOnlyConfig, construct
from membench_aot.model import AttentionOnly
from membench_tasks.bigram import BIGRAM, BigramConfig
from membench_tasks.geometric import GEOMETRIC, GeometricConfig
from membench_tasks.low_entropy import LOW_ENTROPY, LowEntropyConfig
from membench_tasks.ngram import NGRAM, NgramConfig


def build(facts: Facts, **config: Any) -> AttentionOnly:
    torch.manual_seed(0)
    return AttentionOnly(facts.shape, AttentionOnlyConfig(**config)).double()


def right_answers(module: nn.Module, facts: Facts) -> int:
    """Contexts whose label alone has the largest logit: an ordinary forward pass of an ordinary copy."""
    even = Facts(facts.inputs, facts.targets, np.full(len(facts), 1 / len(facts)), facts.vocab, facts.answers)
    return round(evaluate(module, even, 1).accuracy * len(facts))


def run(name: str, facts: Facts, **config: Any) -> tuple[AttentionOnly, Mapping[str, Any]]:
    module = build(facts, **config)
    return module, ARCHITECTURE.constructions[name](module, facts)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("N", "d", "d_h", "H"), [(50, 10, 10, 20), (50, 10, 5, 20), (50, 2, 2, 20)])
def test_theorem_1_memorises_everything_it_promises(N: int, d: int, d_h: int, H: int, seed: int) -> None:
    T0 = H * d_h + d
    facts = draw_facts(BIGRAM, BigramConfig(N=N, T0=T0), seed)
    module, report = run("theorem-1", facts, d=d, d_h=d_h, H=H)
    assert right_answers(module, facts) == T0
    assert report["memorised"] == report["certified"] == report["rank"] == T0
    assert report["margin"] > 0
    assert report["condition"] < 1e11


@pytest.mark.parametrize("seed", range(5))
def test_the_embedding_as_a_table_memorises_more(seed: int) -> None:
    N, d, d_h, H = 50, 12, 10, 20
    facts = draw_facts(BIGRAM, BigramConfig(N=N), seed)
    module, report = run("embedding-assisted", facts, d=d, d_h=d_h, H=H)
    assert report["certified"] == report["memorised"] == N + H * min(d_h, d - 2) == 250
    assert right_answers(module, facts) >= 250


@pytest.mark.parametrize(
    ("N", "d", "d_h", "H", "expected"),
    [(50, 10, 5, 20, 150), (50, 10, 8, 20, 210), (10, 4, 2, 20, 50), (50, 4, 2, 20, 90)],
)
def test_sizes_of_the_embedding_assisted_construction(N: int, d: int, d_h: int, H: int, expected: int) -> None:
    report = run("embedding-assisted", draw_facts(BIGRAM, BigramConfig(N=N), 0), d=d, d_h=d_h, H=H)[1]
    assert report["certified"] == expected


def test_a_support_that_is_too_large_is_memorised_in_part() -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=20, zipf=1.0), 0)
    module, report = run("theorem-1", facts, d=4, d_h=3, H=5)
    assert report["contexts"] == 400
    assert report["memorised"] == report["certified"] == 19
    likeliest = np.sort(facts.prior)[::-1][:19].sum()
    assert evaluate(module, facts, 1).accuracy >= 0.95 * likeliest


@pytest.mark.parametrize(("S", "T0"), [(1, 20), (3, 60), (5, 60)])
def test_contexts_of_any_length(S: int, T0: int) -> None:
    facts = draw_facts(NGRAM, NgramConfig(N=20, S=S, T0=T0), 0)
    module, report = run("theorem-1", facts, d=4, d_h=4, H=14)
    assert report["certified"] == report["memorised"] == (4 if S == 1 else 60)
    assert right_answers(module, facts) >= report["certified"]


def test_surplus_contexts_of_equal_tokens_are_skipped() -> None:
    """Two equal tokens are told apart by d + H dimensions only, whatever d_h is."""
    inputs = np.repeat(np.arange(30, dtype=np.int64)[:, None], 2, axis=1)
    facts = Facts(inputs, np.arange(30, dtype=np.int64)[::-1].copy(), np.full(30, 1 / 30), 30)
    report = run("theorem-1", facts, d=4, d_h=4, H=6)[1]
    assert report["memorised"] == report["certified"] == 10


@pytest.mark.parametrize("scale", [False, True])
def test_scores_may_be_scaled(scale: bool) -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=12, T0=30), 0)
    assert run("theorem-1", facts, d=5, d_h=5, H=5, scale=scale)[1]["certified"] == 30
    assert run("embedding-assisted", facts, d=5, d_h=3, H=8, scale=scale)[1]["certified"] == 30


def test_no_heads_at_all() -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=8), 0)
    assert run("theorem-1", facts, d=3, H=0)[1]["certified"] == 3
    assert run("embedding-assisted", facts, d=3, H=0)[1]["certified"] == 8


def test_a_single_label_does_not_make_the_basis_singular() -> None:
    inputs = draw_facts(BIGRAM, BigramConfig(N=12, T0=25), 0).inputs
    facts = Facts(inputs, np.full(25, 7, dtype=np.int64), np.full(25, 1 / 25), 12)
    assert run("theorem-1", facts, d=5, d_h=5, H=4)[1]["certified"] == 25


def test_the_likeliest_answer_of_a_distribution_is_memorised() -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=10, T0=30, p=0.2), 0)
    module, report = run("theorem-1", facts, d=5, d_h=5, H=5)
    assert report["certified"] == 30
    assert evaluate(module, facts, 1).accuracy == pytest.approx(facts.bayes_accuracy())


def test_the_same_facts_give_the_same_weights() -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=12, T0=30), 0)
    first, second = (run("theorem-1", facts, d=5, d_h=5, H=5)[0].state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("seed", range(3))
def test_ill_conditioned_draws_are_drawn_again_and_reported(seed: int) -> None:
    """One feature dimension: attention tells all contexts apart in theory, but not in float64."""
    facts = draw_facts(BIGRAM, BigramConfig(N=50), seed)
    module, report = run("embedding-assisted", facts, d=3, d_h=1, H=20)
    assert report["redraws"] > construct.REDRAWS
    assert report["left_out"] > 0
    assert report["memorised"] + report["left_out"] == 50 + 20
    assert report["certified"] == report["memorised"]
    assert right_answers(module, facts) >= report["certified"]


def test_convex_readout_memorises_more_than_a_linear_system() -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=30), 0)
    module, report = run("convex-readout", facts, d=6, d_h=6, H=5)
    assert report["certified"] == report["memorised"] >= 1.5 * (5 * 6 + 6)
    assert right_answers(module, facts) >= report["certified"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_convex_readout_of_the_published_model(seed: int) -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=50), seed)
    module, report = run("convex-readout", facts, d=10, d_h=10, H=20)
    assert report["certified"] == report["memorised"] >= 2.5 * 210
    assert right_answers(module, facts) >= report["certified"]


def test_convex_readout_of_few_facts_memorises_them_all() -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=12, T0=20), 0)
    assert run("convex-readout", facts, d=4, d_h=4, H=4)[1]["certified"] == 20


@pytest.mark.parametrize("d", [pytest.param(4, marks=pytest.mark.slow), 5])
def test_distribution_matches_the_floor(d: int) -> None:
    facts = draw_facts(GEOMETRIC, GeometricConfig(N=10, S=2), 0)
    module, report = run("distribution", facts, d=d, d_h=d, H=(100 - d) // d)
    assert report["exact"]
    assert report["kl"] == pytest.approx(evaluate(module, facts, 1).kl, abs=1e-12)
    assert report["kl"] == pytest.approx(report["floor"], rel=1e-5)


def test_distribution_below_capacity_is_the_best_readout() -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=8), 0)
    module, report = run("distribution", facts, d=3, d_h=3, H=9)  # 30 dimensions for 64 contexts
    uniform = float(np.log(8) - facts.entropies().mean())
    assert not report["exact"]
    assert report["floor"] < evaluate(module, facts, 1).kl < uniform


def test_labels_have_no_best_divergence() -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=5), 0)
    with pytest.raises(NotApplicable, match="labels have no best divergence"):
        run("distribution", facts, d=2, H=1)


@pytest.mark.parametrize("name", ARCHITECTURE.constructions)
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"layers": 2}, "layers=2"),
        ({"d": 4, "d_h": 2, "shared_projection": True}, "shared_projection=true"),
        ({"skip_position": False}, "skip_position=false"),
    ],
)
def test_other_models_are_refused_with_a_reason(name: str, config: dict[str, Any], reason: str) -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=5), 0)
    with pytest.raises(NotApplicable, match=reason):
        run(name, facts, **{"d": 4, "H": 2, **config})


@pytest.mark.parametrize("name", ["theorem-1", "embedding-assisted", "convex-readout"])
def test_one_dimension_is_refused(name: str) -> None:
    with pytest.raises(NotApplicable, match="d=1"):
        run(name, draw_facts(BIGRAM, BigramConfig(N=5), 0), d=1, H=2)


@pytest.mark.parametrize("N", [2, 12])
def test_two_answers_need_only_one_dimension(N: int) -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=N, A=2), 1)
    module, report = run("theorem-1", facts, d=1, H=3)
    assert report["certified"] == report["memorised"] >= 2
    assert right_answers(module, facts) >= report["certified"]


@pytest.mark.parametrize("A", [2, 3, 40])
@pytest.mark.parametrize(
    ("name", "d", "d_h", "H"),
    [
        *((name, *sizes) for name in ("theorem-1", "convex-readout") for sizes in ((6, 3, 5), (2, 2, 8), (10, 10, 2))),
        *(("embedding-assisted", *sizes) for sizes in ((6, 3, 5), (4, 2, 8), (10, 10, 2))),
    ],
)
def test_answers_may_be_fewer_or_more_than_tokens(name: str, d: int, d_h: int, H: int, A: int) -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=12, A=A), 0)
    module, report = run(name, facts, d=d, d_h=d_h, H=H)
    promised = {"embedding-assisted": 12 + H * min(d_h, d - 2)}.get(name, d + H * d_h)
    assert report["certified"] == report["memorised"]
    assert report["memorised"] + report["left_out"] >= promised
    assert right_answers(module, facts) >= report["certified"]


@pytest.mark.parametrize("A", [3, 4, 12])
def test_distribution_over_other_answers_matches_the_floor(A: int) -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=8, A=A, T0=24), 0)
    module, report = run("distribution", facts, d=4, d_h=4, H=5)
    assert report["exact"]
    assert evaluate(module, facts, 1).kl == pytest.approx(report["floor"], rel=1e-5, abs=1e-9)


@pytest.mark.parametrize(("N", "A", "d", "H"), [(3, 3, 4, 2), (8, 2, 4, 3), (8, 3, 10, 1)])
def test_dimensions_that_no_answer_depends_on_do_not_make_the_basis_singular(N: int, A: int, d: int, H: int) -> None:
    """As many contexts as features, or more, leave the readout no freedom but in what the unembedding does not read."""
    facts = draw_facts(BIGRAM, BigramConfig(N=N, A=A), 0)
    module, report = run("convex-readout", facts, d=d, H=H)
    assert report["certified"] == report["memorised"]
    assert right_answers(module, facts) >= report["certified"]
    noisy = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=N, A=A), 0)
    module, report = run("distribution", noisy, d=d, H=H)
    assert report["kl"] < float(np.log(A) - noisy.entropies().mean())
