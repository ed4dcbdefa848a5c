"""What is claimed of the attention-only transformer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from membench.api import Facts, NotApplicable, Setting, Shape
from membench.interface.facts import draw_facts
from membench.theory.counting import shattered
from membench.theory.evaluate import BoundValue, evaluate_bounds
from membench_aot import ARCHITECTURE, AttentionOnlyConfig
from membench_aot.bounds import bounds, identifiable_parameters, parameters
from membench_aot.model import AttentionOnly
from membench_tasks.bigram import BIGRAM, BigramConfig
from membench_tasks.low_entropy import LOW_ENTROPY, LowEntropyConfig
from membench_tasks.ngram import NGRAM, NgramConfig


def bigrams(N: int, **options: Any) -> Facts:
    return draw_facts(BIGRAM, BigramConfig(N=N, **options), 0)


def evaluate(facts: Facts, expensive: bool = False, **config: Any) -> dict[str, BoundValue]:
    setting = Setting("aot", AttentionOnlyConfig(**config), facts)
    return {value.name: value for value in evaluate_bounds(bounds(), setting, expensive=expensive)}


SIZES = [
    # N, S, A, d, d_h, H, formal, identifiable
    (50, 2, 50, 10, 10, 20, 9020, 4900),
    (50, 2, 50, 10, 5, 20, 5020, 3900),
    (10, 2, 10, 2, 2, 21, 380, 204),
    (70, 2, 70, 13, 13, 31, 22802, 12129),
    (200, 2, 200, 50, 25, 11, 75100, 58750),
    (50, 2, 20, 10, 10, 20, 8720, 4600),
    (50, 2, 1000, 10, 10, 20, 18520, 14400),
]


@pytest.mark.parametrize(("N", "S", "A", "d", "d_h", "H", "formal", "identifiable"), SIZES)
def test_parameters(N: int, S: int, A: int, d: int, d_h: int, H: int, formal: int, identifiable: int) -> None:
    shape = Shape(N, S, A)
    assert parameters(shape, d, d_h, H) == formal
    assert identifiable_parameters(shape, d, d_h, H) == identifiable
    module = AttentionOnly(shape, AttentionOnlyConfig(d=d, d_h=d_h, H=H))
    assert sum(weight.numel() for weight in module.parameters()) == formal


@pytest.mark.parametrize(
    ("N", "S", "d", "d_h", "H", "used"),
    [
        (50, 2, 10, 10, 20, 9020),
        (50, 2, 10, 5, 20, 3110),
        (10, 2, 2, 2, 21, 380),
        (70, 2, 13, 13, 31, 22802),
        (200, 2, 50, 25, 11, 50050),
    ],
)
def test_parameters_of_the_published_code(N: int, S: int, d: int, d_h: int, H: int, used: int) -> None:
    """Without what it allocates and never uses."""
    module = AttentionOnly(Shape(N, S, N), AttentionOnlyConfig(d=d, d_h=d_h, H=H, shared_projection=True))
    assert sum(weight.numel() for weight in module.parameters()) == used


def jacobian_rank(module: nn.Module, inputs: torch.Tensor) -> int:
    """Directions in parameter space that change log-probabilities."""
    names = [name for name, _ in module.named_parameters()]
    weights = tuple(weight.detach() for weight in module.parameters())

    def outputs(*values: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = torch.func.functional_call(module, dict(zip(names, values, strict=True)), inputs)
        return (logits - logits.mean(dim=1, keepdim=True)).flatten()

    columns = torch.func.jacrev(outputs, argnums=tuple(range(len(weights))))(*weights)
    matrix = torch.cat([column.reshape(column.shape[0], -1) for column in columns], dim=1)
    values = torch.linalg.svdvals(matrix)
    return int((values > 1e-9 * values[0]).sum())


@pytest.mark.parametrize(
    ("N", "S", "A", "d", "d_h", "H"),
    [
        (6, 2, 6, 2, 1, 2),
        (6, 2, 6, 2, 2, 3),
        (7, 2, 7, 3, 2, 2),
        (5, 3, 5, 2, 2, 2),
        (8, 2, 8, 3, 1, 1),
        (6, 3, 6, 4, 1, 1),
        (6, 2, 6, 3, 1, 0),
        (6, 2, 9, 2, 1, 2),
        (9, 2, 4, 2, 2, 3),
        (7, 2, 4, 3, 2, 2),
        (4, 3, 8, 3, 2, 2),
        (8, 2, 4, 3, 1, 1),
        (6, 3, 7, 4, 1, 1),
        (6, 2, 4, 3, 1, 0),
        (8, 2, 2, 1, 1, 2),
        (5, 2, 9, 1, 1, 2),
    ],
)
def test_identifiable_parameters_are_the_rank_of_the_jacobian(N: int, S: int, A: int, d: int, d_h: int, H: int) -> None:
    torch.manual_seed(0)
    module = AttentionOnly(Shape(N, S, A), AttentionOnlyConfig(d=d, d_h=d_h, H=H)).double()
    for weight in module.parameters():
        nn.init.normal_(weight)
    inputs = torch.cartesian_prod(*[torch.arange(N)] * S)
    assert jacobian_rank(module, inputs) == identifiable_parameters(Shape(N, S, A), d, d_h, H)


def test_all_models_of_one_dimension_have_no_more_directions_than_encoders() -> None:
    """Two heads of dimension 3 have more parameters to tell apart than 16 contexts have logits of rank 3."""
    torch.manual_seed(0)
    N, A, d = 4, 9, 3
    module = AttentionOnly(Shape(N, 2, A), AttentionOnlyConfig(d=d, H=2)).double()
    for weight in module.parameters():
        nn.init.normal_(weight)
    inputs = torch.cartesian_prod(torch.arange(N), torch.arange(N))
    every = d * (N**2 + A - 1 - d)
    assert jacobian_rank(module, inputs) == every < identifiable_parameters(Shape(N, 2, A), d, d, 2)


@pytest.mark.parametrize(("N", "A", "d"), [(5, 9, 5), (9, 5, 5), (5, 5, 5)])
def test_identifiable_parameters_are_counted_for_fewer_dimensions_than_tokens_and_answers(
    N: int, A: int, d: int
) -> None:
    assert ARCHITECTURE.identifiable is not None
    assert ARCHITECTURE.identifiable(Shape(N, 2, A), AttentionOnlyConfig(d=d - 1)) > 0
    with pytest.raises(NotApplicable, match=f"counted for d < N and d < A, not d={d}, N={N} and A={A}"):
        ARCHITECTURE.identifiable(Shape(N, 2, A), AttentionOnlyConfig(d=d))


@pytest.mark.parametrize(
    ("N", "H", "d_h", "d", "memorised", "accuracy"),
    [
        (50, 20, 10, 10, 210, 0.102320),
        (50, 20, 5, 10, 110, 0.063120),
        (50, 1, 10, 10, 20, 0.027840),
        (10, 20, 2, 2, 42, 0.478000),
        (200, 11, 50, 50, 600, 0.019925),
    ],
)
def test_theorem_1_and_corollary_2(N: int, H: int, d_h: int, d: int, memorised: int, accuracy: float) -> None:
    values = evaluate(bigrams(N), H=H, d_h=d_h, d=d)
    assert values["theorem-1"].value == values["feature-rank"].value == memorised
    assert values["corollary-2"].value == pytest.approx(accuracy, abs=5e-7)
    assert values["corollary-2"].expected
    assert values["feature-rank-accuracy"].value == pytest.approx(memorised / N**2)


def test_heads_wider_than_the_stream_are_out_of_scope() -> None:
    """H d_h + d would be 102 and even promise everything; the features have 42 dimensions."""
    values = evaluate(bigrams(10), H=20, d_h=5, d=2, shared_projection=True)
    assert values["theorem-1"].reason == "does not apply: d_h=5 > d=2"
    assert values["corollary-2"].reason == "does not apply: d_h=5 > d=2"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"d": 4, "d_h": 2, "shared_projection": True}, "shared_projection=true"),
        ({"d": 4, "skip_position": False}, "skip_position=false"),
        ({"d": 1}, "d=1"),
    ],
)
def test_models_that_theorem_1_is_not_about(config: dict[str, Any], reason: str) -> None:
    value = evaluate(bigrams(10), H=3, **config)["theorem-1"]
    assert value.status == "does not apply"
    assert reason in str(value.reason)


def test_supports_that_theorem_1_is_wrong_about() -> None:
    alone = evaluate(draw_facts(NGRAM, NgramConfig(N=20, S=1, T0=20), 0), H=8, d=5)
    assert alone["theorem-1"].reason == (
        "does not apply: S=1, and with a single position all heads repeat the residual stream"
    )
    assert alone["feature-rank"].value == 5
    twins = np.repeat(np.arange(50, dtype=np.int64)[:, None], 2, axis=1)
    equal = evaluate(Facts(twins, twins[:, 0].copy(), np.full(50, 0.02), 50), H=9, d=5)
    assert equal["theorem-1"].reason == "does not apply: these contexts span 14 dimensions of the 50 that are promised"
    assert equal["feature-rank"].value == 14


def test_the_bound_never_exceeds_the_facts() -> None:
    values = evaluate(bigrams(10, T0=30), H=20, d=5)
    assert values["theorem-1"].value == values["embedding-assisted"].value == 30
    assert values["corollary-2"].value == 1


@pytest.mark.parametrize(
    ("N", "d", "d_h", "H", "memorised", "accuracy"),
    [
        (50, 10, 5, 20, 150, 0.078800),
        (50, 10, 8, 20, 210, 0.102320),
        (10, 4, 2, 20, 50, 0.550000),
        (200, 50, 25, 11, 475, 0.016816),
        (50, 12, 10, 20, 250, 0.118000),
    ],
)
def test_embedding_assisted(N: int, d: int, d_h: int, H: int, memorised: int, accuracy: float) -> None:
    values = evaluate(bigrams(N), H=H, d_h=d_h, d=d)
    assert values["embedding-assisted"].value == memorised
    assert values["embedding-assisted-accuracy"].value == pytest.approx(accuracy, abs=5e-7)


def test_embedding_assisted_needs_three_dimensions() -> None:
    assert "d=2, and d >= 3 is needed" in str(evaluate(bigrams(10), d=2)["embedding-assisted"].reason)


@pytest.mark.parametrize(
    ("N", "H", "d_h", "plotted", "own", "accuracy"),
    [(50, 20, 10, 181, 21, 0.028232), (50, 20, 5, 81, 21, 0.028232), (10, 9, 2, 10, 10, 0.19)],
)
def test_both_readings_of_mahdavi(N: int, H: int, d_h: int, plotted: int, own: int, accuracy: float) -> None:
    values = evaluate(bigrams(N), H=H, d_h=d_h, d=10)
    assert values["mahdavi-plotted"].value == plotted
    assert values["mahdavi-plotted"].direction == "reference"
    assert values["mahdavi"].value == own
    assert values["mahdavi-accuracy"].value == pytest.approx(accuracy, abs=5e-7)


def test_mahdavi_needs_independent_tokens_and_different_queries() -> None:
    facts = draw_facts(NGRAM, NgramConfig(N=10, S=4, T0=50), 0)
    assert evaluate(facts, H=3, d=3)["mahdavi"].reason == (
        "does not apply: S=4 > d=3, and a context's tokens must be linearly independent"
    )
    assert evaluate(facts, H=30, d=8)["mahdavi"].value == 10  # one context for each last token


def test_majority_is_what_no_head_reaches() -> None:
    facts = bigrams(50, zipf=1.0)
    expected = sum(
        max(facts.prior[(facts.inputs[:, 1] == q) & (facts.targets == k)].sum() for k in range(50)) for q in range(50)
    )
    assert evaluate(facts, H=2)["majority"].value == pytest.approx(expected)
    assert evaluate(facts, H=2, d=1)["majority"].status == "does not apply"


@pytest.mark.parametrize(
    ("N", "d", "d_h", "H", "contexts"), [(50, 10, 10, 20, 4797.5), (50, 10, 5, 20, 2513.1), (50, 2, 2, 20, 192.1)]
)
def test_readout_shattering(N: int, d: int, d_h: int, H: int, contexts: float) -> None:
    value = evaluate(bigrams(N), d=d, d_h=d_h, H=H)["readout-shattering"]
    assert value.value == pytest.approx(contexts, abs=0.05)
    assert value.status == ("vacuous" if contexts > N * N else "applies")
    assert "frozen" in str(value.restricted_to)


@pytest.mark.parametrize(
    ("N", "d", "d_h", "H", "contexts"), [(50, 10, 10, 20, 451), (50, 10, 5, 20, 351), (10, 2, 2, 20, 91)]
)
def test_exact_distribution(N: int, d: int, d_h: int, H: int, contexts: int) -> None:
    value = evaluate(bigrams(N), d=d, d_h=d_h, H=H)["exact-distribution"]
    assert value.value == contexts
    assert "exactly" in str(value.restricted_to)
    assert evaluate(bigrams(N), d=N, H=1)["exact-distribution"].status == "does not apply"


@pytest.mark.parametrize(("d", "N", "T0", "order"), [(10, 50, 210, 3144), (4, 10, 100, 672), (10, 50, 2500, 30624)])
def test_huben_morris_is_an_order(d: int, N: int, T0: int, order: int) -> None:
    value = evaluate(bigrams(N, T0=T0), d=d)["huben-morris"]
    assert (value.value, value.status) == (order, "order")
    assert evaluate(bigrams(N, T0=T0), d=3)["huben-morris"].status == "does not apply"


def test_theorem_3_is_an_order_without_a_number() -> None:
    value = evaluate(bigrams(5), d=2)["theorem-3"]
    assert (value.value, value.status) == (None, "order")


@pytest.mark.parametrize(("N", "T0"), [(10, 100), (50, 210)])
def test_parameters_that_memorise_everything(N: int, T0: int) -> None:
    value = evaluate(bigrams(N, T0=T0), expensive=True, d=5)["corollary-1"]
    assert value.value == 2 * (2 + 2 * N + 4 * (T0 - 2))


def test_theorem_1_for_distributions_reaches_what_an_encoder_reaches() -> None:
    facts = draw_facts(LOW_ENTROPY, LowEntropyConfig(N=10, T0=40), 0)
    enough, short = evaluate(facts, True, d=5, H=7), evaluate(facts, True, d=5, H=6)
    assert enough["aot-floor"].value == pytest.approx(0.0325, rel=0.1)
    ladder = [enough[f"aot-{name}"].value or 0 for name in ("rank-floor", "floor", "optimal-scale")]
    assert 0 < ladder[0] < ladder[1] < ladder[2]
    assert short["aot-floor"].reason == "does not apply: H d_h + d reaches 35 of T0=40 contexts"
    assert short["aot-zero-logits"].value == pytest.approx(math.log(10) - facts.entropies().mean())


@pytest.mark.parametrize("A", [2, 7, 30])
def test_features_are_about_tokens_and_readouts_about_answers(A: int) -> None:
    N, d, d_h, H = 10, 4, 3, 5
    facts, plain = bigrams(N, A=A), bigrams(N)
    values, same = (evaluate(one, True, d=d, d_h=d_h, H=H) for one in (facts, plain))
    for name in ("theorem-1", "feature-rank", "feature-rank-accuracy", "embedding-assisted", "mahdavi"):
        assert values[name].value == same[name].value, name
    assert values["theorem-1"].value == H * d_h + d
    for name, memorised in (("corollary-2", 19), ("embedding-assisted-accuracy", 20), ("mahdavi-accuracy", 6)):
        assert values[name].value == pytest.approx(1 / A + (1 - 1 / A) * memorised / 100), name
    assert values["readout-shattering"].value == pytest.approx(shattered(A, d * (H * d_h + d)))
    assert values["corollary-1"].value == 2 * (2 + N + A + 4 * (100 - 2))
    identifiable = d * (2 + N + A) + 2 * H * d_h * (2 * d - d_h) - d * d - 2 * d
    if d + 1 < A:
        assert values["exact-distribution"].value == identifiable / d - A + 1 + d
    else:
        assert "rank d is no restriction" in str(values["exact-distribution"].reason)
    assert values["aot-zero-logits"].value == pytest.approx(math.log(A))


def test_dimensions_are_not_counted_beyond_the_tokens() -> None:
    values = evaluate(draw_facts(NGRAM, NgramConfig(N=4, A=12, S=2), 0), d=5)
    assert values["exact-distribution"].reason == (
        "does not apply: d=5 >= N=4, and the parameters are counted for d < N"
    )


def test_one_dimension_is_enough_for_two_answers_and_any_tokens() -> None:
    two, three = (evaluate(bigrams(10, A=A), d=1, H=3) for A in (2, 3))
    for name in ("theorem-1", "feature-rank", "majority"):
        assert two[name].status == "applies"
        assert "only two answers can ever be given" in str(three[name].reason)


@pytest.mark.parametrize(("A", "order"), [(3, 672), (10, 672), (40, 852)])
def test_the_order_of_huben_and_morris_counts_the_larger_table(A: int, order: int) -> None:
    assert evaluate(bigrams(10, A=A), d=4)["huben-morris"].value == order


def test_every_bound_can_be_shown() -> None:
    names = [bound.name for bound in bounds()]
    assert len(set(names)) == len(names)
    for bound in bounds():
        assert bound.architecture == "aot"
        assert all([bound.summary, bound.formula, bound.latex, bound.reference])
