from __future__ import annotations

import numpy as np
import pytest

from membench.interface.facts import DATA_STREAM, WEIGHT_STREAM, Facts, Shape, generator

INPUTS = np.array([[0, 1], [1, 2], [2, 2]])
PRIOR = np.array([0.5, 0.25, 0.25])


def facts(**changes: object) -> Facts:
    fields: dict[str, object] = {"inputs": INPUTS, "targets": np.array([2, 0, 1]), "prior": PRIOR, "vocab": 3}
    return Facts(**{**fields, **changes})  # type: ignore[arg-type]


def test_an_association_and_its_dense_form_say_the_same() -> None:
    dense = facts(targets=facts().distributions())
    assert facts().is_association
    assert not dense.is_association
    assert dense.entropies().tolist() == facts().entropies().tolist() == [0, 0, 0]
    assert dense.bayes_accuracy() == facts().bayes_accuracy() == 1
    assert facts().shape == Shape(vocab=3, length=2, answers=3)


def test_answers_may_be_fewer_or_more_than_tokens() -> None:
    few, many = facts(targets=np.array([1, 0, 1]), answers=2), facts(targets=np.array([4, 0, 1]), answers=5)
    assert (few.shape, many.shape) == (Shape(3, 2, 2), Shape(3, 2, 5))
    assert many.distributions().shape == (3, 5)
    assert facts(targets=many.distributions(), answers=5).entropies().tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"one answer in 0\.\.1 for each of 3 contexts"):
        facts(answers=2)
    with pytest.raises(ValueError, match="3 distributions over 5 answers"):
        facts(targets=np.eye(3), answers=5)


def test_entropy_and_bayes_accuracy_of_a_distribution() -> None:
    noisy = facts(targets=np.array([[0.5, 0.5, 0], [1, 0, 0], [0.25, 0.25, 0.5]]))
    assert noisy.entropies() == pytest.approx([np.log(2), 0, 1.5 * np.log(2)])
    assert noisy.bayes_accuracy() == pytest.approx(0.5 * 0.5 + 0.25 + 0.25 * 0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": np.array([[0, 1], [0, 1], [2, 2]])}, "distinct"),
        ({"inputs": np.array([[0, 1], [1, 3], [2, 2]])}, "tokens in 0..2"),
        ({"inputs": INPUTS.astype(np.float64)}, "int64"),
        ({"targets": np.array([0, 1, 3])}, "labels"),
        ({"targets": np.array([0, 1])}, "labels"),
        ({"targets": np.full((3, 3), 0.5)}, "distributions"),
        ({"targets": np.array([[1.5, -0.5, 0]] * 3)}, "distributions"),
        ({"targets": np.full((3, 3), np.nan)}, "distributions"),
        ({"prior": np.array([0.5, 0.5, 0.5])}, "prior"),
    ],
)
def test_what_is_not_a_conditional_distribution_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        facts(**changes)


def test_the_digest_follows_the_content() -> None:
    assert facts().sha256() == facts().sha256()
    others = [facts(targets=np.array([2, 0, 0])), facts(prior=np.array([0.25, 0.5, 0.25])), facts(vocab=4)]
    others += [facts(answers=4), facts(answers=5)]
    assert len({one.sha256() for one in [facts(), *others]}) == 6


def test_the_digest_does_not_mention_answers_that_are_the_tokens() -> None:
    digest = "3aeb8a300542c103f808"
    assert facts().sha256()[:20] == facts(answers=3).sha256()[:20] == digest


def test_streams_of_one_seed_are_independent_and_repeatable() -> None:
    data, weights = generator(7, DATA_STREAM), generator(7, WEIGHT_STREAM)
    assert data.integers(2**60) != weights.integers(2**60)
    assert generator(7, DATA_STREAM).integers(2**60) == generator(7, DATA_STREAM).integers(2**60)
