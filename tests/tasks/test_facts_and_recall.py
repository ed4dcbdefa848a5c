"""`facts` and `recall`: who may answer what, and how often it is asked."""

from __future__ import annotations

import numpy as np
import pytest

from membench.interface.facts import draw_facts
from membench_tasks.facts import FACTS, FactsConfig
from membench_tasks.recall import RECALL, RecallConfig


def test_each_relation_has_answers_of_its_own() -> None:
    config = FactsConfig(subjects=40, relations=3, D=5)
    facts = draw_facts(FACTS, config, 0)
    assert (len(facts), facts.shape) == (120, (43, 2, 15))
    for relation in range(3):
        labels = facts.targets[facts.inputs[:, 1] == 40 + relation]
        assert set(labels) == set(range(5 * relation, 5 * relation + 5))


def test_fewer_answers_are_shared_by_relations() -> None:
    facts = draw_facts(FACTS, FactsConfig(subjects=40, relations=6, D=5, A=12), 0)
    sets = [set(facts.targets[facts.inputs[:, 1] == 40 + relation]) for relation in range(6)]
    assert all(len(one) == 5 and max(one) < 12 for one in sets)
    assert len(set.union(*sets)) <= 12


def test_noise_stands_around_a_subject_and_a_relation() -> None:
    config = FactsConfig(subjects=5, relations=4, D=2, noise=3, noise_vocab=7, copies=3)
    facts, plain = draw_facts(FACTS, config, 0), draw_facts(FACTS, FactsConfig(subjects=5, relations=4, D=2), 0)
    assert (len(facts), facts.shape.vocab, facts.shape.length) == (60, 5 + 4 + 7 + 1, 6)
    assert (facts.inputs[:, -1] == 16).all()
    for context, label in zip(facts.inputs, facts.targets, strict=True):
        pair = [token for token in context if token < 9]
        assert pair[0] < 5 <= pair[1]
        (row,) = np.flatnonzero((plain.inputs == pair).all(axis=1))
        assert plain.targets[row] == label


def test_some_facts_are_drawn_without_replacement() -> None:
    some, whole = (draw_facts(FACTS, FactsConfig(T0=T0), 3) for T0 in (50, None))
    assert len(some) == 50
    everything = {(*map(int, context), int(label)) for context, label in zip(whole.inputs, whole.targets, strict=True)}
    assert {(*map(int, c), int(y)) for c, y in zip(some.inputs, some.targets, strict=True)} <= everything


@pytest.mark.parametrize(("T0", "A"), [(100, 5), (99, 10), (7, 40)])
def test_answers_are_dealt_out_evenly(T0: int, A: int) -> None:
    facts = draw_facts(RECALL, RecallConfig(N=100, A=A, T0=T0, zipf=2.0), 1)
    counts = np.bincount(facts.targets, minlength=A)
    assert counts.max() - counts.min() <= 1
    assert facts.prior.max() / facts.prior.min() == pytest.approx(T0**2)


def test_the_prior_is_drawn_last() -> None:
    one, other = (draw_facts(RECALL, RecallConfig(zipf=s), 0) for s in (0.0, 2.0))
    assert np.array_equal(one.inputs, other.inputs)
    assert np.array_equal(one.targets, other.targets)
    assert np.ptp(one.prior) == 0


@pytest.mark.parametrize("task", [FACTS, RECALL])
def test_a_seed_decides(task: object) -> None:
    from typing import Any, cast

    one = cast("Any", task)
    digests = [draw_facts(one, one.config(), seed).sha256() for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]
