"""What is claimed of the MLP transformer, the linear memory and the sequence encoder; and their sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from membench.api import Bound, Facts, Setting, Shape
from membench.interface.facts import draw_facts
from membench.theory.counting import shattered
from membench.theory.evaluate import BoundValue, evaluate_bounds
from membench.theory.universal_bounds import membench_bounds
from membench_linear_memory import LinearMemoryConfig
from membench_linear_memory import bounds as memory
from membench_mlp_transformer import MLPTransformerConfig
from membench_mlp_transformer import bounds as mlp
from membench_mlp_transformer.model import MLPTransformer
from membench_sequence_encoder import SequenceEncoderConfig
from membench_sequence_encoder import bounds as encoder
from membench_sequence_encoder.model import SequenceEncoder
from membench_tasks.bigram import BIGRAM, BigramConfig
from membench_tasks.low_entropy import LOW_ENTROPY, LowEntropyConfig


def bigrams(N: int, **options: int) -> Facts:
    return draw_facts(BIGRAM, BigramConfig(N=N, **options), 0)


def evaluate(bounds: Callable[[], list[Bound]], config: Any, facts: Facts) -> dict[str, BoundValue]:
    setting = Setting(str(bounds()[0].architecture), config, facts)
    return {value.name: value for value in evaluate_bounds(bounds(), setting, expensive=True)}


@pytest.mark.parametrize(
    ("N", "d", "w", "bias", "size"),
    [
        (70, 10, 0, True, 1820),
        (70, 10, 200, True, 6020),
        (70, 10, 200, False, 5820),
        (70, 13, 780, True, 23582),
        (50, 10, 100, True, 3520),
    ],
)
def test_parameters_of_the_mlp_transformer(N: int, d: int, w: int, bias: bool, size: int) -> None:
    module = MLPTransformer(Shape(N, 2, N), MLPTransformerConfig(d=d, w=w, bias=bias))
    assert sum(weight.numel() for weight in module.parameters()) == size


@pytest.mark.parametrize(("N", "S", "d", "size"), [(50, 2, 10, 25500), (10, 2, 2, 220), (10, 3, 5, 5050)])
def test_parameters_of_the_sequence_encoder(N: int, S: int, d: int, size: int) -> None:
    module = SequenceEncoder(Shape(N, S, N), SequenceEncoderConfig(d=d))
    assert sum(weight.numel() for weight in module.parameters()) == size


def test_figures_for_mlps_alone() -> None:
    values = evaluate(mlp.bounds, MLPTransformerConfig(d=10, w=100), bigrams(50))
    assert values["baum"].value == 1000
    assert values["bubeck"].value == 250
    assert values["baum"].direction == values["bubeck"].direction == "reference"


def test_the_one_head_of_the_mlp_transformer() -> None:
    values = evaluate(mlp.bounds, MLPTransformerConfig(d=10, w=100), bigrams(50))
    assert values["mlp-feature-rank"].value == 20
    assert values["mlp-feature-rank-accuracy"].value == pytest.approx(0.027840)
    assert values["mlp-majority"].value == pytest.approx(0.0761, abs=0.01)
    unseen = evaluate(mlp.bounds, MLPTransformerConfig(d=10, skip_position=False), bigrams(50))
    assert "skip_position=false" in str(unseen["mlp-feature-rank"].reason)
    assert evaluate(mlp.bounds, MLPTransformerConfig(d=1), bigrams(5))["mlp-majority"].status == "does not apply"


def test_linear_memory() -> None:
    values = evaluate(memory.bounds, LinearMemoryConfig(d=10), bigrams(50))
    assert values["pseudo-inverse"].value == 10
    assert values["pseudo-inverse-accuracy"].value == pytest.approx(1 / 50 + 49 / 50 * 10 / 2500)
    assert 27 < (values["memory-shattering"].value or 0) < 400  # a learned matrix was seen to recall 27
    assert values["memory-order"].status == "order"
    assert evaluate(memory.bounds, LinearMemoryConfig(d=10), bigrams(50, T0=7))["pseudo-inverse"].value == 7
    assert evaluate(memory.bounds, LinearMemoryConfig(d=1), bigrams(5))["pseudo-inverse"].status == "does not apply"


@pytest.mark.parametrize("d", [2, 8, 64])
def test_order_of_a_learned_memory(d: int) -> None:
    T = memory.recalled(d)
    assert T * math.log(T) == pytest.approx(d * d / 2)


def test_sequence_encoder() -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=10), 0)
    values = evaluate(encoder.bounds, SequenceEncoderConfig(d=5), facts)
    ladder = ["coherence", "refined", "equation-6", "optimal-scale", "floor", "rank-floor"]
    steps = [values[f"encoder-{name}"].value or 0 for name in ladder]
    assert steps == sorted(steps, reverse=True)
    assert values["encoder-floor"].value == pytest.approx(0.0325, rel=0.05)
    assert (values["encoder-spectral"].value or 0) > steps[4]
    assert values["encoder-circle"].value == 100
    assert evaluate(encoder.bounds, SequenceEncoderConfig(d=1), bigrams(5))["encoder-circle"].status == "does not apply"
    assert evaluate(encoder.bounds, SequenceEncoderConfig(d=9), facts)["encoder-proposition-2"].value == 0


@pytest.mark.parametrize("A", [2, 25])
def test_other_answers_than_tokens(A: int) -> None:
    facts = bigrams(10, A=A)
    for bounds, config, name in [
        (memory.bounds, LinearMemoryConfig(d=6), "pseudo-inverse"),
        (mlp.bounds, MLPTransformerConfig(d=6), "mlp-feature-rank"),
    ]:
        values = evaluate(bounds, config, facts)
        count = {"pseudo-inverse": 6, "mlp-feature-rank": 12}[name]
        assert values[name].value == count
        assert values[f"{name}-accuracy"].value == pytest.approx(1 / A + (1 - 1 / A) * count / 100)
    assert evaluate(memory.bounds, LinearMemoryConfig(d=6), facts)["memory-shattering"].value == pytest.approx(
        shattered(A, 36)
    )
    for bounds, config_type, name in [
        (memory.bounds, LinearMemoryConfig, "pseudo-inverse"),
        (mlp.bounds, MLPTransformerConfig, "mlp-majority"),
        (encoder.bounds, SequenceEncoderConfig, "encoder-circle"),
    ]:
        status = evaluate(bounds, config_type(d=1), facts)[name].status
        assert status == ("applies" if A == 2 else "does not apply")


@pytest.mark.parametrize(("A", "d", "zero"), [(4, 3, True), (4, 2, False), (15, 14, True), (15, 13, False)])
def test_enough_dimensions_for_every_distribution_follow_the_answers(A: int, d: int, zero: bool) -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=8, A=A), 0)
    values = evaluate(encoder.bounds, SequenceEncoderConfig(d=d), facts)
    assert values["encoder-proposition-2"].status == ("applies" if zero else "does not apply")
    assert values["encoder-rank-floor"].status == ("vacuous" if zero else "applies")
    if zero:
        assert values["encoder-floor"].value == pytest.approx(0, abs=1e-12)


def test_all_bounds_can_be_shown_and_share_one_namespace() -> None:
    from membench_aot import bounds as aot

    together = [*membench_bounds(), *aot.bounds(), *mlp.bounds(), *memory.bounds(), *encoder.bounds()]
    names = [bound.name for bound in together]
    assert len(set(names)) == len(names)
    for bound in together:
        assert all([bound.summary, bound.formula, bound.latex, bound.reference])
        assert bound.latex.count("{") == bound.latex.count("}")
