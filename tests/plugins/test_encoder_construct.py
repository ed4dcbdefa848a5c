"""Theorem 2's encoder, loaded into the sequence encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from membench.api import Facts, NotApplicable
from membench.interface.facts import draw_facts
from membench.measure.evaluate import evaluate
from membench_sequence_encoder import ARCHITECTURE, SequenceEncoderConfig
from membench_sequence_encoder.model import SequenceEncoder
from membench_tasks.bigram import BIGRAM, BigramConfig
from membench_tasks.geometric import GEOMETRIC, GeometricConfig
from membench_tasks.low_entropy import LOW_ENTROPY, LowEntropyConfig


def run(name: str, facts: Facts, d: int) -> tuple[SequenceEncoder, Mapping[str, Any]]:
    torch.manual_seed(0)
    module = SequenceEncoder(facts.shape, SequenceEncoderConfig(d=d)).double()
    return module, ARCHITECTURE.constructions[name](module, facts)


@pytest.mark.parametrize(
    ("name", "d", "divergence"),
    [
        ("equation-6", 2, 9.756128),
        ("optimal-scale", 2, 2.012179),
        ("equation-6", 25, 0.39080147),
        ("equation-6", 49, 0.38500214),
    ],
)
def test_a_noisy_table_of_fifty_tokens(name: str, d: int, divergence: float) -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=50, p=0.1), 0)
    module, report = run(name, facts, d)
    assert evaluate(module, facts, 1).kl == pytest.approx(divergence, abs=5e-7)
    assert report["kl"] == pytest.approx(divergence, abs=5e-7)
    assert report["certified"] == 2500


def test_each_step_is_better_than_the_one_before() -> None:
    facts = draw_facts(GEOMETRIC, GeometricConfig(N=8, S=2), 0)
    divergences = [
        evaluate(run(name, facts, 3)[0], facts, 1).kl for name in ("equation-6", "optimal-scale", "best-found")
    ]
    assert divergences == sorted(divergences, reverse=True)
    assert divergences[0] > divergences[-1]


@pytest.mark.parametrize("name", ["equation-6", "optimal-scale"])
def test_labels_are_answered_on_the_circle(name: str) -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=20, T0=100), 0)
    module, report = run(name, facts, 2)
    assert report["certified"] == report["float32_memorised"] == 100
    assert evaluate(module, facts, 1).accuracy == pytest.approx(1)
    assert 0 < report["kl"] < 1e-6


def test_contexts_outside_the_facts_get_no_answer() -> None:
    facts = draw_facts(BIGRAM, BigramConfig(N=4, T0=5), 0)
    module, _ = run("equation-6", facts, 2)
    every = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    known = {tuple(context) for context in facts.inputs.tolist()}
    unknown = torch.tensor([tuple(context) not in known for context in every.tolist()])
    assert not module(every)[unknown].any()


def test_one_dimension_is_refused() -> None:
    with pytest.raises(NotApplicable, match="A=4 answers need one each"):
        run("equation-6", draw_facts(BIGRAM, BigramConfig(N=4), 0), 1)


@pytest.mark.parametrize("A", [2, 5, 30])
@pytest.mark.parametrize("name", ["equation-6", "optimal-scale", "best-found"])
def test_answers_may_be_fewer_or_more_than_tokens(name: str, A: int) -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=8, A=A, p=0.1), 0)
    module, report = run(name, facts, 3)
    assert evaluate(module, facts, 1).kl == pytest.approx(report["kl"])
    assert report["certified"] == 64 or name == "best-found"  # which wants a small divergence, not right answers
    if A <= 4 and name != "equation-6":
        assert report["kl"] == pytest.approx(0, abs=1e-9)  # on the simplex


def test_zero_probabilities_are_allowed() -> None:
    facts = draw_facts(GEOMETRIC, GeometricConfig(N=4, S=1, nb=2), 0)
    for name in ARCHITECTURE.constructions:
        assert np.isfinite(evaluate(run(name, facts, 2)[0], facts, 1).kl)
