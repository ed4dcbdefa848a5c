from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from membench.interface.facts import Facts
from membench.measure import evaluate as evaluation
from membench.measure.evaluate import InvalidOutput, check_logits, evaluate
from membench.measure.metrics import METRICS

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


def test_all_right_is_exactly_one_under_any_prior() -> None:
    inputs, prior = np.arange(97)[:, None], np.arange(1, 98) ** -2.0
    facts = Facts(inputs, np.arange(97), prior / prior.sum(), 97)
    assert evaluate(Table(torch.eye(97).tolist()), facts, parameters=1).accuracy == 1.0


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


def test_recall_counts_the_first_k_answers_and_a_tie_against_them() -> None:
    logits = [[5.0, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5], [1, 1, 1, 0, 0, 0]]
    facts = Facts(np.array([[0], [1], [2]]), np.array([1, 1, 0]), np.array([0.5, 0.3, 0.2]), 3, 6)
    found = evaluate(Table(logits), facts, parameters=1)
    assert found.accuracy == 0
    assert found.recall == {2: pytest.approx(0.5), 5: pytest.approx(1), 10: None}  # third: three are tied
    assert found.as_record()["recall@2"] == found.recall[2]
    assert set(METRICS) - set(found.as_record()) == {"excess_kl", "stream_accuracy"}


def test_recall_of_a_distribution_is_the_probability_of_the_first_k() -> None:
    targets = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    facts = Facts(np.array([[0], [1]]), targets, np.array([0.5, 0.5]), 2, 3)
    found = evaluate(Table([[0.0, 2, 1], [1, 1, 0]]), facts, parameters=1)
    assert found.recall[2] == pytest.approx((0.3 + 0.2 + 0.1 + 0.2) / 2)
    tied = evaluate(Table([[1.0, 1, 1], [0, 0, 1]]), facts, parameters=1)
    assert tied.recall[2] == pytest.approx((0.2 + 0.3 + 0.7 + 0.1) / 2)


def test_bits_beyond_the_last_token_count_against_the_best_guess_by_it() -> None:
    inputs = np.array([[0, 3], [1, 3], [0, 2], [1, 2]])
    facts = Facts(inputs, np.array([0, 0, 1, 2]), UNIFORM, 4, 3)
    logits = {(0, 3): 0, (1, 3): 0, (0, 2): 1, (1, 2): 2}

    class Pairs(nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return 100 * torch.eye(3)[[logits[tuple(pair)] for pair in tokens.tolist()]]

    found = evaluate(Pairs(), facts, parameters=1)
    assert found.bits_beyond_last_token == pytest.approx(2)  # one of two answers, twice; the other two say nothing
    assert evaluate(Table(LOGITS), Facts(INPUTS, np.arange(4), UNIFORM, 4), 1).bits_beyond_last_token is None
