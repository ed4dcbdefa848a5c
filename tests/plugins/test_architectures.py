"""What holds for every built-in architecture."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import cross_entropy

import membench_aot
import membench_attention_mlp
import membench_hashed_ngram
import membench_hopfield
import membench_linear_memory
import membench_lookup
import membench_mlp_memory
import membench_mlp_transformer
import membench_moe
import membench_pair_mlp
import membench_product_key
import membench_sequence_encoder
import membench_torch
from membench.api import Architecture, BudgetTooSmall, Shape
from membench.interface.options import options_of, validate

PACKAGES = (
    membench_aot,
    membench_mlp_transformer,
    membench_linear_memory,
    membench_attention_mlp,
    membench_sequence_encoder,
    membench_lookup,
    membench_torch,
    membench_pair_mlp,
    membench_mlp_memory,
    membench_moe,
    membench_product_key,
    membench_hashed_ngram,
    membench_hopfield,
)
ARCHITECTURES: dict[str, Architecture[Any]] = {
    one.name: one for package in PACKAGES for one in package.membench_architectures()
}
BUDGETED = [name for name, one in ARCHITECTURES.items() if one.for_budget]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("aot", {"d": 4, "d_h": 3, "H": 3}),
    ("aot", {"d": 4, "H": 3, "layers": 2, "scale": True, "skip_position": False}),
    ("aot", {"d": 4, "d_h": 2, "H": 3, "shared_projection": True}),
    ("aot", {"d": 4, "d_h": 5, "H": 2, "shared_projection": True, "layers": 2}),
    ("aot", {"d": 4, "d_h": 2, "H": 2, "shared_projection": True, "one_projection": True, "layers": 3}),
    ("mlp-transformer", {"d": 4, "w": 6}),
    ("mlp-transformer", {"d": 4, "w": 6, "bias": False, "scale": True, "skip_position": False}),
    ("linear-memory", {"d": 6}),
    ("attention-mlp", {"d": 4, "w": 6}),
    ("attention-mlp", {"d": 4, "w": 6, "tied": True, "alpha": 1.702}),
    ("attention-mlp", {"d": 4, "w": 6, "mask": "weights", "omega": 3.0}),
    ("sequence-encoder", {"d": 4}),
    ("lookup", {}),
    ("lstm", {"d": 3, "w": 4}),
    ("lstm", {"d": 4, "layers": 2}),
    ("gru", {"d": 3, "w": 4}),
    ("gru", {"d": 4, "layers": 2}),
    ("transformer-encoder", {"d": 4}),
    ("transformer-encoder", {"d": 4, "heads": 1, "w": 3, "layers": 2, "norm_first": True}),
    ("pair-mlp", {"w": 40}),
    ("pair-mlp", {"w": 40, "mixing": "multiply", "bias": True, "gate": True, "residual": True, "norm": True}),
    ("mlp-memory", {"d": 6}),
    ("mlp-memory", {"d": 6, "m": 8, "experts": 4, "activation": "silu"}),
    ("moe", {"d": 4, "experts": 3, "w": 5}),
    ("moe", {"d": 4, "experts": 4, "k": 4, "w": 3}),
    ("product-key", {"d": 4, "n": 3}),
    ("product-key", {"d": 4, "n": 4, "k": 20, "heads": 2}),
    ("hashed-ngram", {"M": 200, "d": 4}),
    ("hashed-ngram", {"M": 50, "d": 2, "hashes": 2}),
    ("hopfield", {"d": 4, "M": 9}),
    ("hopfield", {"d": 4, "M": 9, "beta": 0.5, "updates": 3}),
]
each_variant = pytest.mark.parametrize(("name", "options"), VARIANTS)


def build(name: str, options: dict[str, Any], shape: Shape, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    architecture = ARCHITECTURES[name]
    return architecture.build(shape, architecture.config(**options))


def contexts(shape: Shape, batch: int) -> torch.Tensor:
    return torch.randint(shape.vocab, (batch, shape.length), generator=torch.Generator().manual_seed(1))


def test_they_are_declared_without_torch() -> None:
    names = ", ".join(package.__name__ for package in PACKAGES)
    lookup = "[one for name in list(sys.modules) if name.startswith('membench_') for one in [sys.modules[name]]]"
    code = (
        f"import sys, {names}\n"
        f"for plugin in {lookup}:\n"
        "    if hasattr(plugin, 'membench_architectures'):\n"
        "        print(*(one.name for one in plugin.membench_architectures()))\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(ARCHITECTURES)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_defaults_are_valid_options(name: str) -> None:
    config = ARCHITECTURES[name].config
    validate(config(), name)
    assert config() == config()
    assert hash(config()) == hash(config())
    assert all(option.help for option in options_of(config).values())


@each_variant
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 50])
@pytest.mark.parametrize("answers", [3, 5, 8])
def test_logits_have_the_promised_shape(
    name: str, options: dict[str, Any], length: int, batch: int, answers: int
) -> None:
    shape = Shape(5, length, answers)
    logits = build(name, options, shape)(contexts(shape, batch))
    assert logits.shape == (batch, answers)
    assert logits.dtype == torch.float32
    assert logits.isfinite().all()
    assert (logits.topk(2, dim=1).values.diff(dim=1) < 0).all()  # a tie would count as wrong


@each_variant
def test_float64_gives_the_same_function(name: str, options: dict[str, Any]) -> None:
    shape = Shape(5, 2, 5)
    module, tokens = build(name, options, shape), contexts(shape, 50)
    single = module(tokens)
    double = module.double()(tokens)
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)


@each_variant
@pytest.mark.parametrize("batch", [4, 50])
def test_stacked_replicas_equal_a_loop(name: str, options: dict[str, Any], batch: int) -> None:
    shape = Shape(5, 2, 3)
    modules = [build(name, options, shape, seed) for seed in range(3)]
    tokens = torch.stack([contexts(shape, batch).roll(seed, 0) for seed in range(3)])
    labels = torch.randint(3, (3, batch), generator=torch.Generator().manual_seed(2))
    parameters, buffers = stack_module_state(modules)

    def logits_of(parameters: Any, buffers: Any, tokens: torch.Tensor) -> Any:
        return functional_call(modules[0], (parameters, buffers), (tokens,))

    logits = vmap(logits_of)(parameters, buffers, tokens)
    losses = torch.stack([cross_entropy(*pair) for pair in zip(logits, labels, strict=True)])
    gradients = torch.autograd.grad(losses.sum(), list(parameters.values()))
    for r, module in enumerate(modules):
        alone = module(tokens[r])
        torch.testing.assert_close(logits[r], alone, rtol=1e-4, atol=1e-5)
        own = torch.autograd.grad(cross_entropy(alone, labels[r]), [module.get_parameter(name) for name in parameters])
        for together, single in zip(gradients, own, strict=True):
            torch.testing.assert_close(together[r], single, rtol=1e-3, atol=1e-5)


@each_variant
def test_every_parameter_is_trained(name: str, options: dict[str, Any]) -> None:
    shape = Shape(5, 2, 5)
    module, tokens = build(name, options, shape), contexts(shape, 50)
    cross_entropy(module(tokens), tokens[:, 0]).backward()
    untrained = [name for name, p in module.named_parameters() if p.grad is None or p.grad.abs().max() == 0]
    assert untrained == []


@each_variant
def test_the_forward_pass_changes_nothing(name: str, options: dict[str, Any]) -> None:
    shape = Shape(5, 2, 5)
    module, tokens = build(name, options, shape), contexts(shape, 50)
    before, kept = {key: value.clone() for key, value in module.state_dict().items()}, tokens.clone()
    first = module(tokens)
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert torch.equal(tokens, kept)
    assert torch.equal(module(tokens), first)


@each_variant
@pytest.mark.parametrize("answers", [3, 11])
def test_answers_cost_a_row_of_the_last_table_and_nothing_else(
    name: str, options: dict[str, Any], answers: int
) -> None:
    plain, other = (build(name, options, Shape(5, 2, A)).state_dict() for A in (5, answers))
    changed = {key: tuple(value.shape) for key, value in other.items() if value.shape != plain[key].shape}
    expected = {
        "linear-memory": {"outputs": (answers, 6)},
        "mlp-memory": {"outputs": (answers, 6)},
        "lookup": {"table.weight": (25, answers)},
        "pair-mlp": {"unembed.weight": (answers, 40), **({"unembed.bias": (answers,)} if "bias" in options else {})},
    }.get(name, {"unembed.weight": (answers, 4)})
    assert changed == expected


@each_variant
def test_what_is_called_an_embedding_exists(name: str, options: dict[str, Any]) -> None:
    names = [key for key, _ in build(name, options, Shape(5, 2, 5)).named_parameters()]
    for prefix in ARCHITECTURES[name].embeddings:
        assert any(key.startswith(f"{prefix}.") for key in names)


@pytest.mark.parametrize("name", BUDGETED)
@pytest.mark.parametrize(
    "shape", [Shape(20, 1, 20), Shape(50, 2, 50), Shape(7, 3, 7), Shape(7, 3, 40), Shape(50, 2, 9)]
)
@pytest.mark.parametrize("parameters", [3000, 4001, 30_000])
def test_a_budget_is_used_but_not_exceeded(name: str, shape: Shape, parameters: int) -> None:
    architecture = ARCHITECTURES[name]
    assert architecture.for_budget is not None
    config = architecture.for_budget(shape, parameters)
    used = sum(p.numel() for p in architecture.build(shape, config).parameters())
    assert used <= parameters
    full = name == "sequence-encoder" and config.d == shape.answers  # more would be of no use
    assert full or used > 0.6 * parameters


@pytest.mark.parametrize("name", BUDGETED)
def test_a_budget_that_is_too_small_is_refused_with_the_smallest_that_is_not(name: str) -> None:
    architecture, shape = ARCHITECTURES[name], Shape(9, 2, 4)
    assert architecture.for_budget is not None
    with pytest.raises(BudgetTooSmall) as caught:
        architecture.for_budget(shape, 0)
    least = caught.value.least
    smallest = architecture.build(shape, architecture.for_budget(shape, least))
    assert sum(p.numel() for p in smallest.parameters()) == least
    with pytest.raises(BudgetTooSmall):
        architecture.for_budget(shape, least - 1)
