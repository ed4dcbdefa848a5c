"""`world` and `text`: real facts and words, from tables that come with membench."""

from __future__ import annotations

import math

import numpy as np
import pytest

from membench.interface.facts import Facts, draw_facts
from membench_tasks import tables
from membench_tasks.text import TEXT, TextConfig
from membench_tasks.world import FACTS, WORLD, WorldConfig

CONFIG = WorldConfig()
NAMES = WORLD.names(CONFIG) if WORLD.names else None


def known(facts: Facts) -> dict[tuple[str, ...], str]:
    assert NAMES
    return {
        tuple(NAMES.tokens[token] for token in context): NAMES.answers[label]
        for context, label in zip(facts.inputs, facts.targets, strict=True)
    }


def test_the_world_is_as_everybody_knows_it() -> None:
    facts = known(draw_facts(WORLD, CONFIG, 0))
    assert len(facts) == FACTS == 1247
    assert facts["France", "capital"] == "Paris"
    assert facts["Japan", "currency"] == "Yen (JPY)"
    assert facts["Kenya", "continent"] == "Africa"
    assert facts["Chile", "top-level domain"] == ".cl"
    assert facts["Germany", "calling code"] == "+49"
    assert ("Antarctica", "capital") not in facts


def test_all_facts_are_the_same_for_every_seed_and_fewer_are_drawn() -> None:
    whole = draw_facts(WORLD, CONFIG, 0)
    assert whole.sha256() == draw_facts(WORLD, CONFIG, 1).sha256()
    some = [draw_facts(WORLD, WorldConfig(T0=100), seed) for seed in (0, 1)]
    assert some[0].sha256() != some[1].sha256()
    assert all(known(one).items() <= known(whole).items() and len(one) == 100 for one in some)


def test_names_are_distinct_and_as_many_as_tokens_and_answers() -> None:
    assert NAMES
    shape = WORLD.shape(CONFIG)
    assert (len(set(NAMES.tokens)), len(set(NAMES.answers))) == (shape.vocab, shape.answers)
    assert set(draw_facts(WORLD, CONFIG, 0).targets) == set(range(shape.answers))


def test_a_table_with_other_content_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'world.csv' is not the table that this version of membench was made with"):
        tables.read_table("world.csv", "0" * 64)


@pytest.mark.parametrize(
    ("N", "S", "contexts", "bits"), [(50, 1, 50, 2.895), (50, 2, 2056, 2.787), (100, 2, 7208, 3.434)]
)
def test_shakespeare_has_so_many_contexts_and_so_much_entropy(N: int, S: int, contexts: int, bits: float) -> None:
    config = TextConfig(N=N, S=S)
    facts = draw_facts(TEXT, config, 0)
    assert len(facts) == contexts
    assert TEXT.contexts
    assert TEXT.contexts(config) == contexts
    assert facts.prior @ facts.entropies() / math.log(2) == pytest.approx(bits, abs=5e-4)


def test_the_words_of_a_smaller_vocabulary_are_those_of_a_larger_one() -> None:
    assert TEXT.names
    few, many = (TEXT.names(TextConfig(N=N)).tokens for N in (50, 200))
    assert (few[:3], few[-1]) == (("the", "and", "i"), "*")
    assert few[:-1] == many[:49]
    facts = draw_facts(TEXT, TextConfig(S=1), 0)
    my, lord = few.index("my"), few.index("lord")
    assert facts.targets[my].argsort()[-2] == lord  # after a rarer word


def test_smoothing_leaves_nothing_impossible() -> None:
    plain, smooth = (draw_facts(TEXT, TextConfig(smooth=s), 0) for s in (0.0, 0.5))
    assert plain.targets.min() == 0
    assert smooth.targets.min() > 0
    assert np.array_equal(plain.prior, smooth.prior)
    assert (smooth.entropies() >= plain.entropies() - 1e-9).all()
