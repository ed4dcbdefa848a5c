"""Laws that others reported: their values, and that nothing enforces them."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest

from membench.api import Facts, NotApplicable, Setting
from membench.interface.facts import draw_facts
from membench.theory.counting import rate
from membench.theory.evaluate import BoundValue, evaluate_bounds
from membench.theory.limits import broken_limits, missed_guarantee
from membench.theory.reported_laws import with_logarithm
from membench.theory.universal_bounds import membench_bounds
from membench.verify.checks import check_bounds
from membench_linear_memory import LinearMemoryConfig
from membench_linear_memory import bounds as linear
from membench_mlp_memory import MLPMemoryConfig
from membench_mlp_memory import bounds as mlp
from membench_mlp_transformer import MLPTransformerConfig
from membench_mlp_transformer import bounds as transformer
from membench_tasks.bigram import BIGRAM, BigramConfig
from membench_tasks.recall import RECALL, RecallConfig


def bigrams(N: int = 50, **options: int) -> Facts:
    return draw_facts(BIGRAM, BigramConfig(N=N, **options), 0)


def general(facts: Facts, parameters: int) -> dict[str, BoundValue]:
    return {one.name: one for one in evaluate_bounds(membench_bounds(), Setting("any", None, facts, parameters, 32))}


def test_bits_of_parameters_are_the_accuracy_that_they_pay_for() -> None:
    found = general(bigrams(), 3000)
    for name, bits in (("allen-zhu-li", 2.0), ("morris", 3.6)):
        value = found[name].value
        assert value is not None
        assert 2500 * rate(value, 50) == pytest.approx(3000 * bits)
        assert (found[name].direction, found[name].status) == ("reported", "applies")


def test_enough_bits_for_all_labels_say_nothing() -> None:
    found = general(bigrams(), 10_000)["allen-zhu-li"]
    assert found.status == "vacuous"
    assert found.reason == "vacuous: 2 bits in each of 10000 parameters hold all labels"


def test_the_guide_lines_are_those_of_the_paper() -> None:
    facts = bigrams(8)
    line = {one.name: one for one in linear.bounds()}["nichani-linear"]
    found = [line.value(Setting("linear-memory", LinearMemoryConfig(d=d), facts)) for d in (8, 16, 32, 64)]
    assert [round(value) for value in found] == [17, 50, 156, 506]
    line = {one.name: one for one in mlp.bounds()}["nichani-mlp"]
    found = [line.value(Setting("mlp-memory", MLPMemoryConfig(d=d), facts)) for d in (8, 16, 32)]
    assert [round(value) for value in found] == [147, 475, 1588]
    with pytest.raises(NotApplicable, match="ReLU neurons without experts"):
        line.value(Setting("mlp-memory", MLPMemoryConfig(d=8, activation="silu"), facts))


def test_the_guide_line_for_32_answers_is_that_of_the_paper() -> None:
    line = {one.name: one for one in mlp.bounds()}["nichani-mlp-classes"]
    facts = draw_facts(RECALL, RecallConfig(N=100, A=32), 0)
    found = [line.value(Setting("mlp-memory", MLPMemoryConfig(d=d), facts)) for d in (8, 11, 16)]
    assert [round(value) for value in found] == [213, 403, 853]
    with pytest.raises(NotApplicable, match="A=8, and it was reported for 32 answers"):
        line.value(Setting("mlp-memory", MLPMemoryConfig(d=8), bigrams(8)))


@pytest.mark.parametrize("target", [0.1, 5.0, 1e6])
def test_a_number_times_its_logarithm(target: float) -> None:
    N = with_logarithm(target)
    assert N * math.log(N) == pytest.approx(target)


def test_nothing_violates_misses_or_proves_what_was_reported() -> None:
    """Neither a model that does far better nor one that does far worse, and verification does not ask for it."""
    told = [asdict(one) for one in general(bigrams(), 3000).values() if one.direction == "reported"]
    assert len(told) == 2
    for accuracy in (0.0, 1.0):
        metrics = {"accuracy": accuracy, "associations": 2500 * accuracy, "bits": 0.0}
        assert broken_limits(metrics, told, 32 * 3000) == []
        assert missed_guarantee(metrics, told) == ""
    assert check_bounds([], {one["name"]: one for one in told}) == []


def test_orders_have_numbers_and_no_constants() -> None:
    found = general(bigrams(), 3000)
    assert found["kajitsuka-sato"].value == 50
    assert found["kajitsuka-sato-bits"].value == pytest.approx(50 * math.log2(50))
    assert found["madden-upper"].value == pytest.approx(3000 / 49)
    assert {found[name].status for name in ("kajitsuka-sato", "kajitsuka-sato-bits", "madden-upper")} == {"order"}


@pytest.mark.parametrize(("layers", "status"), [(1, "order"), (2, "does not apply")])
def test_the_lower_order_is_about_one_layer(layers: int, status: str) -> None:
    setting = Setting("mlp-transformer", MLPTransformerConfig(layers=layers), bigrams(8), 700, 32)
    found = {one.name: one for one in evaluate_bounds(transformer.bounds(), setting)}
    assert found["madden-lower"].status == status
    if layers == 1:
        assert found["madden-lower"].value == 100


def test_a_reported_law_is_drawn_dashed_and_a_limit_otherwise() -> None:
    import membench
    from membench.analysis.theory_plot import STYLES

    figure = membench.bounds("aot", "bigram", M={"H": [1, 4, 8]}, T={"N": 50}).plot()
    lines = {str(line.get_label()): line.get_linestyle() for line in figure.axes[0].lines}
    assert lines["morris (reported)"] == STYLES["reported"] == "--"
    assert lines["bayes (limit)"] != "--"
