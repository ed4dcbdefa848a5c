from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from membench.interface.facts import Facts
from membench.measure import evaluate as evaluation
from membench.measure.evaluate import InvalidOutput, check_logits, evaluate

INPUTS = np.array([[0], [1], [2], [3]])
UNIFORM = np.full(4, 0.25)


class Table(nn.Module):
    def __init__(self, logits: list[list[float]]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.logits[tokens[:, 0]]


LOGITS = [[2.0, 0, 0, 0], [0, 2.0, 0, 0], [0, 0, 2.0, 2.0], [3.0, 0, 0, 0]]


def test_accuracy_is_strict_and_weighted_by_the_prior() -> None:
    facts = Facts(INPUTS, np.array([0, 1, 2, 3]), np.array([0.1, 0.2, 0.3, 0.4]), 4)
    found = evaluate(Table(LOGITS), facts, parameters=16)
    assert found.accuracy == pytest.approx(0.1 + 0.2)  # the tie in the third row is wrong
    assert found.associations == pytest.approx(4 * (0.3 - 0.25) / 0.75)


def test_bits_count_against_a_uniform_guess() -> None:
    facts = Facts(INPUTS, np.array([0, 1, 2, 3]), UNIFORM, 4)
    nothing = evaluate(Table([[0.0] * 4] * 4), facts, parameters=16)
    assert (nothing.accuracy, nothing.bits) == (0, pytest.approx(0))
    assert nothing.kl == pytest.approx(math.log(4))
    everything = evaluate(Table((100 * torch.eye(4)).tolist()), facts, parameters=16)
    assert everything.bits == pytest.approx(8)
    assert everything.bits_per_parameter == pytest.approx(0.5)
    assert everything.kl == pytest.approx(0)


@pytest.mark.parametrize("answers", [2, 9])
def test_chance_and_bits_follow_the_answers_and_not_the_tokens(answers: int) -> None:
    labels = np.array([0, 1, 0, 1])
    facts = Facts(INPUTS, labels, UNIFORM, 4, answers)
    nothing = evaluate(Table([[0.0] * answers] * 4), facts, parameters=16)
    assert (nothing.kl, nothing.bits) == (pytest.approx(math.log(answers)), pytest.approx(0))
    assert nothing.associations == pytest.approx(-4 / (answers - 1))  # a tie is worse than a guess
    everything = evaluate(Table((100 * torch.eye(answers)[labels]).tolist()), facts, parameters=16)
    assert (everything.accuracy, everything.associations) == (1, pytest.approx(4))
    assert everything.bits == pytest.approx(4 * math.log2(answers))
    with pytest.raises(InvalidOutput, match=rf"\[4, 4\], not \[4, {answers}\]"):
        evaluate(Table(LOGITS), facts, parameters=16)


def test_distributions_are_scored_by_probability_and_divergence() -> None:
    targets = np.array([[0.7, 0.1, 0.1, 0.1]] * 2 + [[0.1, 0.1, 0.5, 0.3]] * 2)
    facts = Facts(INPUTS, targets, UNIFORM, 4)
    found = evaluate(Table(LOGITS), facts, parameters=16)
    assert found.accuracy == pytest.approx((0.7 + 0.1 + 0.3 + 0.1) / 4)  # a tie counts as the less likely answer
    perfect = evaluate(Table(np.log(targets).tolist()), facts, parameters=16)
    assert perfect.kl == pytest.approx(0, abs=1e-6)
    assert perfect.accuracy == pytest.approx(facts.bayes_accuracy())
    by_hand = np.mean(
        [
            np.sum(t * (np.log(t) - torch.log_softmax(torch.tensor(z), 0).numpy()))
            for t, z in zip(targets, LOGITS, strict=True)
        ]
    )
    assert found.kl == pytest.approx(by_hand, abs=1e-6)


def test_zero_probability_targets_do_not_spoil_the_divergence() -> None:
    facts = Facts(INPUTS, np.eye(4), UNIFORM, 4)
    assert evaluate(Table((1000 * torch.eye(4)).tolist()), facts, 16).kl == pytest.approx(0)


def test_many_facts_are_asked_in_chunks_with_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts(INPUTS, np.array([0, 1, 2, 3]), UNIFORM, 4)
    whole = evaluate(Table(LOGITS), facts, 16)
    monkeypatch.setattr(evaluation, "CHUNK", 4)
    assert evaluate(Table(LOGITS), facts, 16) == whole


def test_evaluation_uses_the_model_as_it_would_be_used_and_leaves_it_as_it_was() -> None:
    module = nn.Sequential(Table(LOGITS), nn.Dropout(0.9))
    facts = Facts(INPUTS, np.array([0, 1, 2, 3]), UNIFORM, 4)
    assert evaluate(module, facts, 16) == evaluate(Table(LOGITS), facts, 16)
    assert module.training


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("text", "a str, not a tensor"),
        (torch.zeros(2, 3), r"\[2, 3\], not \[2, 4\]"),
        (torch.zeros(2, 4, dtype=torch.int64), "int64"),
        (torch.full((2, 4), torch.nan), "NaN"),
        (torch.full((2, 4), torch.inf), "infinite"),
    ],
)
def test_what_is_not_logits_is_said_in_words(answer: object, words: str) -> None:
    with pytest.raises(InvalidOutput, match=words):
        check_logits(answer, 2, 4)
