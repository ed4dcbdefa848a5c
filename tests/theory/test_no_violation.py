"""No model, random, trained or constructed, violates a bound that claims to apply."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from membench.api import Bound, Facts, NotApplicable, Setting
from membench.measure.evaluate import evaluate
from membench.theory.counting import accuracy_of
from membench.theory.evaluate import BoundValue, evaluate_bounds
from membench.theory.universal_bounds import membench_bounds
from membench_aot import ARCHITECTURE, AttentionOnlyConfig
from membench_aot import bounds as aot
from membench_aot.model import AttentionOnly
from membench_linear_memory import LinearMemoryConfig
from membench_linear_memory import bounds as memory
from membench_linear_memory.model import LinearMemory
from membench_mlp_transformer import MLPTransformerConfig
from membench_mlp_transformer import bounds as mlp
from membench_mlp_transformer.model import MLPTransformer
from membench_sequence_encoder import SequenceEncoderConfig
from membench_sequence_encoder import bounds as encoder
from membench_sequence_encoder.model import SequenceEncoder

torch.set_num_threads(1)

ALL_BOUNDS = [*membench_bounds(), *aot.bounds(), *mlp.bounds(), *memory.bounds(), *encoder.bounds()]
CLAIMS = {bound.name: bound.claim for bound in ALL_BOUNDS}


@st.composite
def small_facts(
    draw: st.DrawFn, labels: bool | None = None, lengths: tuple[int, int] = (1, 3), most: int = 14
) -> Facts:
    N, A, S = draw(st.integers(2, 5)), draw(st.integers(2, 6)), draw(st.integers(*lengths))
    every = np.array(list(itertools.product(range(N), repeat=S)), dtype=np.int64)
    chosen = draw(st.lists(st.integers(0, len(every) - 1), min_size=1, max_size=most, unique=True))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    prior = rng.dirichlet(np.ones(len(chosen))) if draw(st.booleans()) else np.full(len(chosen), 1 / len(chosen))
    if draw(st.booleans()) if labels is None else labels:
        return Facts(every[chosen], rng.integers(A, size=len(chosen)), prior, N, A)
    targets = rng.dirichlet(np.full(A, draw(st.sampled_from([0.3, 1.0, 4.0]))), size=len(chosen)) + 1e-6
    return Facts(every[chosen], targets / targets.sum(axis=1, keepdims=True), prior, N, A)


@st.composite
def formal_configs(draw: st.DrawFn) -> AttentionOnlyConfig:
    d = draw(st.integers(1, 4))
    return AttentionOnlyConfig(d=d, d_h=draw(st.integers(1, d)), H=draw(st.integers(0, 4)), scale=draw(st.booleans()))


def applying(architecture: str, config: Any, facts: Facts, module: nn.Module) -> list[BoundValue]:
    """Claims about each single model: not those on average over labels, nor about some models only."""
    size = sum(weight.numel() for weight in module.parameters())
    values = evaluate_bounds(ALL_BOUNDS, Setting(architecture, config, facts, size, 64))
    assert [value.reason for value in values if value.status == "failed"] == []
    return [value for value in values if value.status == "applies" and not value.expected and not value.restricted_to]


def right_answers(module: nn.Module, facts: Facts) -> int:
    """Contexts in which the most likely answer has the largest logit, alone."""
    with torch.inference_mode():
        logits = module(torch.from_numpy(facts.inputs))
    best = logits == logits.amax(dim=1, keepdim=True)
    answers = torch.from_numpy(facts.distributions().argmax(axis=1))
    return int((best.gather(1, answers[:, None])[:, 0] & (best.sum(dim=1) == 1)).sum())


def check_limits(values: list[BoundValue], facts: Facts, module: nn.Module) -> None:
    measured = evaluate(module, facts, 1)
    for value in values:
        if CLAIMS[value.name] != "limit":
            continue
        assert value.value is not None
        if value.quantity == "accuracy":
            assert measured.accuracy <= value.value + 1e-9, value
        elif value.quantity == "kl":
            assert measured.kl >= value.value - 1e-9, value
        elif value.quantity == "associations":
            assert right_answers(module, facts) <= value.value, value


def randomise(module: nn.Module, seed: int, size: float) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(size * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return module


def descend(module: nn.Module, facts: Facts, steps: int, rate: float) -> None:
    """Plain gradient descent on the cross-entropy, with normalised steps."""
    inputs, prior = torch.from_numpy(facts.inputs), torch.from_numpy(facts.prior)
    targets = torch.from_numpy(facts.distributions())
    weights = [weight for weight in module.parameters() if weight.numel()]
    for _ in range(steps):
        loss = -(prior @ (targets * module(inputs).log_softmax(1)).sum(1))
        slopes = torch.autograd.grad(loss, weights, allow_unused=True)
        with torch.no_grad():
            for weight, slope in zip(weights, slopes, strict=True):
                if slope is not None:
                    weight.sub_(rate * slope / (slope.norm() + 1e-9))


@settings(max_examples=200, deadline=None)
@given(small_facts(), formal_configs(), st.integers(0, 2**32), st.sampled_from([0.1, 1.0, 5.0]))
def test_random_models_stay_within_their_limits(
    facts: Facts, config: AttentionOnlyConfig, seed: int, size: float
) -> None:
    module = randomise(AttentionOnly(facts.shape, config).double(), seed, size)
    check_limits(applying("aot", config, facts, module), facts, module)


MODELS: list[tuple[str, Any, Any]] = [
    ("aot", AttentionOnlyConfig, AttentionOnly),
    ("mlp-transformer", MLPTransformerConfig, MLPTransformer),
    ("linear-memory", LinearMemoryConfig, LinearMemory),
    ("sequence-encoder", SequenceEncoderConfig, SequenceEncoder),
]


@pytest.mark.parametrize(("name", "config_type", "module_type"), MODELS)
@settings(max_examples=6, deadline=None)
@given(facts=small_facts(), d=st.integers(1, 3), seed=st.integers(0, 2**32))
def test_trained_models_stay_within_their_limits(
    name: str, config_type: Any, module_type: Any, facts: Facts, d: int, seed: int
) -> None:
    config = config_type(d=d)
    torch.manual_seed(seed)
    module = module_type(facts.shape, config).double()
    for _ in range(3):
        descend(module, facts, 15, 0.3)
        check_limits(applying(name, config, facts, module), facts, module)


def test_training_comes_close_to_the_limit_of_one_dimension() -> None:
    """The limit is sharp: descent finds the two answers that one dimension has."""
    facts = Facts(
        np.arange(4, dtype=np.int64)[:, None], np.array([0, 1, 1, 2], dtype=np.int64), np.array([0.1, 0.2, 0.3, 0.4]), 4
    )
    config = SequenceEncoderConfig(d=1)
    torch.manual_seed(0)
    module = SequenceEncoder(facts.shape, config).double()
    descend(module, facts, 300, 0.05)
    assert evaluate(module, facts, 1).accuracy == pytest.approx(0.9)
    check_limits(applying("sequence-encoder", config, facts, module), facts, module)


def constructed(facts: Facts, config: AttentionOnlyConfig) -> list[AttentionOnly]:
    """The models of the constructions that apply and lost nothing to rounding."""
    models = []
    for name in ("theorem-1", "embedding-assisted"):
        module = AttentionOnly(facts.shape, config).double()
        try:
            report = ARCHITECTURE.constructions[name](module, facts)
        except NotApplicable:
            continue
        assert report["certified"] == report["memorised"]
        assume(not report["left_out"])
        models.append(module)
    return models


def silent(facts: Facts, config: AttentionOnlyConfig) -> AttentionOnly:
    """Heads that write nothing, and the best answer for each last token."""
    module = AttentionOnly(facts.shape, config).double()
    joint = np.zeros((facts.vocab, facts.answers))
    np.add.at(joint, facts.inputs[:, -1], facts.prior[:, None] * facts.distributions())
    angles = 2 * torch.pi * torch.arange(facts.answers) / facts.answers
    circle = torch.nn.functional.pad(torch.stack([angles.cos(), angles.sin()], 1), (0, config.d))[:, : config.d]
    with torch.no_grad():
        for weight in module.parameters():
            weight.zero_()
        module.unembed.weight.copy_(circle)
        module.word.weight.copy_(circle[torch.from_numpy(joint.argmax(axis=1))])
    return module


@settings(max_examples=120, deadline=None)
@given(small_facts(), formal_configs())
def test_constructions_keep_what_the_bounds_guarantee(facts: Facts, config: AttentionOnlyConfig) -> None:
    models = constructed(facts, config)
    if config.d >= 2 or facts.answers == 2:
        models.append(silent(facts, config))
    assume(models)
    accuracy = max(evaluate(model, facts, 1).accuracy for model in models)
    right = max(right_answers(model, facts) for model in models)
    values = applying("aot", config, facts, models[0])
    for value in values:
        if CLAIMS[value.name] != "guarantee":
            continue
        assert value.value is not None
        if value.quantity == "accuracy":
            assert accuracy >= value.value - 1e-9, value
        elif value.quantity == "associations":
            assert right >= value.value, value
    for model in models:
        check_limits(values, facts, model)


@settings(max_examples=10, deadline=None)
@given(small_facts(labels=False, lengths=(2, 2), most=8), st.integers(1, 2))
def test_distributions_are_met_as_well_as_the_bounds_guarantee(facts: Facts, d: int) -> None:
    config = AttentionOnlyConfig(d=d, H=8)
    module = AttentionOnly(facts.shape, config).double()
    report = ARCHITECTURE.constructions["distribution"](module, facts)
    assume(report["exact"] and report["condition"] < 1e7)
    reached = evaluate(module, facts, 1).kl
    values = evaluate_bounds(aot_divergence_bounds(), Setting("aot", config, facts), expensive=True)
    for value in values:
        if value.status == "applies" and value.direction == "upper":
            assert value.value is not None
            assert reached <= value.value + 1e-6, value
    check_limits(applying("aot", config, facts, module), facts, module)


def aot_divergence_bounds() -> list[Bound]:
    return [bound for bound in aot.bounds() if bound.quantity == "kl"]


@pytest.mark.parametrize(("count", "A"), [(6, 2), (5, 3)])
def test_corollary_2_is_met_on_average_over_all_labellings(count: int, A: int) -> None:
    """Three dimensions for more contexts of two tokens, and each of the ways to label them.

    The draws depend on the labels through a digest, so the answers beyond what is memorised are as good as dice.
    """
    inputs = np.array(list(itertools.product(range(2), repeat=3))[:count], dtype=np.int64)
    config = AttentionOnlyConfig(d=2, d_h=1, H=1)
    accuracies = []
    for labels in itertools.product(range(A), repeat=count):
        facts = Facts(inputs, np.array(labels, dtype=np.int64), np.full(count, 1 / count), 2, A)
        module = AttentionOnly(facts.shape, config).double()
        assert ARCHITECTURE.constructions["theorem-1"](module, facts)["certified"] == 3
        accuracies.append(evaluate(module, facts, 1).accuracy)
    guesses = len(accuracies) * (count - 3)
    error = ((A - 1) / A**2 / guesses) ** 0.5 * (count - 3) / count
    assert np.mean(accuracies) == pytest.approx(accuracy_of(3, facts), abs=3 * error)
