"""The attention-only transformer against slower ways of writing it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from membench.api import Shape
from membench.interface.options import to_dict
from membench_aot import ARCHITECTURE, AttentionOnlyConfig
from membench_aot.model import AttentionOnly, Heads

FORMAL = [
    {"d_h": d_h, "scale": scale, "skip_position": skip}
    for d_h, scale, skip in itertools.product((2, 4), (False, True), (False, True))
]
SHARED = [
    {"d_h": d_h, "scale": scale, "shared_projection": True}
    for d_h, scale in itertools.product((2, 4, 5), (False, True))
] + [
    {"d_h": 4, "skip_position": True, "shared_projection": True},
    {"d_h": 2, "shared_projection": True, "one_projection": True},
    {"d_h": 4, "shared_projection": True, "one_projection": True},
]


def build(shape: Shape, **options: Any) -> AttentionOnly:
    torch.manual_seed(0)
    return AttentionOnly(shape, AttentionOnlyConfig(**options)).double()


def all_contexts(shape: Shape) -> Tensor:
    return torch.tensor(list(itertools.product(range(shape.vocab), repeat=shape.length)))


def literal_head(layer: Heads, h: int, read: list[Tensor], i: int, scale: float) -> Tensor:
    """What head h writes at position i: softmax over s <= i of (W_Q x_i).(W_K x_s), of W_O W_V x_s."""
    query = layer.query[h] @ read[i]
    scores = [float(query @ (layer.key[h] @ read[s])) * scale for s in range(i + 1)]
    total = sum(math.exp(score) for score in scores)
    values = [math.exp(scores[s]) / total * (layer.value[h] @ read[s]) for s in range(i + 1)]
    return layer.output[h] @ torch.stack(values).sum(0)


def literal(module: AttentionOnly, config: AttentionOnlyConfig, context: list[int]) -> Tensor:
    """Logits of one context, by loops over layers, positions and heads."""
    position = module.position.weight
    stream = [module.word.weight[t] + (position[s] if config.skip_position else 0) for s, t in enumerate(context)]
    for layer in module.layers:
        assert isinstance(layer, Heads)
        compress, decompress = projection(module, layer)
        read = [x if compress is None else compress @ x for x in stream]
        read = [x if config.skip_position else x + position[s] for s, x in enumerate(read)]
        scale = 1 / math.sqrt(config.d_h) if config.scale else 1.0
        for i in range(len(stream)):
            update = torch.zeros_like(read[i])
            for h in range(config.H):
                update = update + literal_head(layer, h, read, i, scale)
            stream[i] = stream[i] + (update if decompress is None else decompress @ update)
    return module.unembed.weight @ stream[-1]


def projection(module: AttentionOnly, layer: Heads) -> tuple[Tensor | None, Tensor | None]:
    """What the layer reads and writes through: the model's, or its own."""
    holder = layer if module.compress is None else module
    return holder.compress, holder.decompress


@pytest.mark.parametrize("options", FORMAL + SHARED)
@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("layers", [1, 2])
@torch.no_grad()
def test_forward_is_the_formula(options: dict[str, Any], length: int, layers: int) -> None:
    shape = Shape(3, length, 3)
    options = {"d": 4, "H": 2, "layers": layers, **options}
    module, config = build(shape, **options), AttentionOnlyConfig(**options)
    tokens = all_contexts(shape)
    expected = torch.stack([literal(module, config, context) for context in tokens.tolist()])
    torch.testing.assert_close(module(tokens), expected, rtol=1e-11, atol=1e-12)  # all contexts at once
    torch.testing.assert_close(module(tokens[:1]), expected[:1], rtol=1e-11, atol=1e-12)  # one by itself


def spy(monkeypatch: pytest.MonkeyPatch, *ways: str) -> list[str]:
    """A list that names, from now on, the ways that were gone."""
    gone: list[str] = []

    def watch(way: str) -> None:
        plain = getattr(AttentionOnly, way)

        def watched(self: AttentionOnly, tokens: Tensor) -> Any:
            gone.append(way)
            return plain(self, tokens)

        monkeypatch.setattr(AttentionOnly, way, watched)

    for way in ways:
        watch(way)
    return gone


@pytest.mark.parametrize(
    "options",
    [
        {"d_h": 3},
        {"d_h": 2, "shared_projection": True},
        {"d_h": 2, "shared_projection": True, "one_projection": True},
        {"skip_position": False},
    ],
)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_both_ways_of_computing_agree(options: dict[str, Any], length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Shape(6, length, 6)
    module = build(shape, d=4, H=3, **options)
    ways = spy(monkeypatch, "_of_each_context", "_of_all_contexts")
    tokens = all_contexts(shape).flip(0)
    table = module(tokens)
    parts = torch.cat([module(part) for part in tokens.split(2)])
    assert set(ways[1:]) == {"_of_each_context"}
    assert ways[0] == "_of_all_contexts"
    torch.testing.assert_close(table, parts, rtol=1e-11, atol=1e-12)
    (by_table,) = torch.autograd.grad(table.square().sum(), module.word.weight)
    (by_part,) = torch.autograd.grad(parts.square().sum(), module.word.weight)
    torch.testing.assert_close(by_table, by_part, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("d_h", [3, 6, 8])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("one", [False, True], ids=["each-its-own", "one-for-all"])
@torch.no_grad()
def test_shared_projection_is_a_sum_of_torch_attention_modules(d_h: int, layers: int, one: bool) -> None:
    shape = Shape(5, 3, 5)
    module = build(shape, d=6, d_h=d_h, H=4, layers=layers, shared_projection=True, one_projection=one)
    tokens = all_contexts(shape)
    future = torch.ones(3, 3, dtype=torch.bool).triu(1)
    stream = module.word(tokens)
    for layer in module.layers:
        assert isinstance(layer, Heads)
        compress, decompress = projection(module, layer)
        read = (stream if compress is None else stream @ compress.T) + module.position.weight
        out = torch.zeros_like(read)
        for h in range(4):
            head = nn.MultiheadAttention(d_h, 1, bias=False, batch_first=True, dtype=torch.float64)
            head.in_proj_weight.copy_(torch.cat([layer.query[h], layer.key[h], layer.value[h]]))
            head.out_proj.weight.copy_(layer.output[h])
            out = out + head(read, read, read, attn_mask=future, need_weights=False)[0]
        stream = stream + (out if decompress is None else out @ decompress.T)
    torch.testing.assert_close(module(tokens), module.unembed(stream[:, -1]), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("N", "S", "d", "d_h", "H", "formal", "shared"),
    [
        (50, 2, 10, 10, 20, 9020, 9020),
        (50, 2, 10, 5, 20, 5020, 3110),
        (10, 2, 2, 2, 21, 380, 380),
        (70, 2, 13, 13, 31, 22802, 22802),
        (200, 2, 50, 25, 11, 75100, 50050),
    ],
)
def test_parameters_are_those_of_the_paper(N: int, S: int, d: int, d_h: int, H: int, formal: int, shared: int) -> None:
    for shared_projection, expected in ((False, formal), (True, shared)):
        module = build(Shape(N, S, N), d=d, d_h=d_h, H=H, shared_projection=shared_projection)
        assert sum(p.numel() for p in module.parameters()) == expected
        assert list(module.buffers()) == []


@pytest.mark.parametrize(
    ("d_h", "layers", "one", "expected"),
    [(4, 3, True, 1512), (4, 3, False, 1640), (4, 1, True, 872), (8, 3, True, 4336), (8, 3, False, 4336)],
)
def test_layers_count_the_projection_that_they_share_once(d_h: int, layers: int, one: bool, expected: int) -> None:
    options = {"d": 8, "d_h": d_h, "H": 5, "layers": layers, "shared_projection": True, "one_projection": one}
    module = build(Shape(30, 2, 30), **options)
    assert sum(p.numel() for p in module.parameters()) == expected
    assert sum(value.numel() for value in module.state_dict().values()) == expected  # no tensor has two names


def test_parameters_have_their_fixed_names_and_shapes() -> None:
    formal = build(Shape(7, 3, 7), d=5, d_h=2, H=4)
    assert {name: tuple(p.shape) for name, p in formal.named_parameters()} == {
        "word.weight": (7, 5),
        "position.weight": (3, 5),
        "layers.0.query": (4, 2, 5),
        "layers.0.key": (4, 2, 5),
        "layers.0.value": (4, 2, 5),
        "layers.0.output": (4, 5, 2),
        "unembed.weight": (7, 5),
    }
    shared = build(Shape(7, 3, 7), d=5, d_h=2, H=4, shared_projection=True, layers=2)
    heads = {f"layers.{layer}.{name}": (4, 2, 2) for layer in (0, 1) for name in ("query", "key", "value", "output")}
    maps = {f"layers.{layer}.compress": (2, 5) for layer in (0, 1)} | {
        f"layers.{layer}.decompress": (5, 2) for layer in (0, 1)
    }
    tables = {"word.weight": (7, 5), "position.weight": (3, 2), "unembed.weight": (7, 5)}
    assert {name: tuple(p.shape) for name, p in shared.named_parameters()} == heads | maps | tables
    one = build(Shape(7, 3, 7), d=5, d_h=2, H=4, shared_projection=True, one_projection=True, layers=2)
    maps = {"compress": (2, 5), "decompress": (5, 2)}
    assert {name: tuple(p.shape) for name, p in one.named_parameters()} == heads | maps | tables


def test_scores_start_alike_with_and_without_scale() -> None:
    plain, scaled = build(Shape(5, 2, 5), H=200, scale=False), build(Shape(5, 2, 5), H=200, scale=True)
    spread = [float(module.get_parameter("layers.0.query").detach().std()) for module in (plain, scaled)]
    assert spread[1] / spread[0] == pytest.approx(math.sqrt(10), rel=0.02)


def test_without_heads_only_the_last_token_counts() -> None:
    module = build(Shape(6, 2, 6), H=0)
    table = module(all_contexts(Shape(6, 2, 6))).reshape(6, 6, 6)
    torch.testing.assert_close(table, table[:1].expand(6, 6, 6))
    assert not torch.equal(table[0, 0], table[0, 1])


def test_automatic_options_equal_explicit_ones() -> None:
    assert AttentionOnlyConfig() == AttentionOnlyConfig(d_h=10, scale=True, skip_position=True)
    shared = AttentionOnlyConfig(d=8, d_h=3, shared_projection=True)
    assert shared == AttentionOnlyConfig(d=8, d_h=3, shared_projection=True, scale=True, skip_position=False)


def test_a_projection_for_all_layers_is_told_only_where_it_is_asked_for() -> None:
    shared = {"d": 8, "d_h": 3, "shared_projection": True, "layers": 3}
    assert "one_projection" not in to_dict(AttentionOnlyConfig(**shared))
    assert to_dict(AttentionOnlyConfig(**shared, one_projection=True))["one_projection"] is True


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="d_h=12 must be at most d=10"):
        AttentionOnlyConfig(d_h=12)
    assert AttentionOnlyConfig(d_h=12, shared_projection=True).d_h == 12
    with pytest.raises(ValueError, match="one_projection=true needs shared_projection=true"):
        AttentionOnlyConfig(one_projection=True)
    with pytest.raises(ValueError, match="skip_position=true needs d_h=5 to equal d=10"):
        AttentionOnlyConfig(d_h=5, shared_projection=True, skip_position=True)


@pytest.mark.parametrize(
    ("parameters", "d", "d_h", "H"), [(110, 1, 1, 2), (500, 2, 2, 18), (3000, 12, 2, 18), (30_000, 49, 2, 63)]
)
def test_a_budget_prefers_small_heads(parameters: int, d: int, d_h: int, H: int) -> None:
    assert ARCHITECTURE.for_budget is not None
    assert ARCHITECTURE.for_budget(Shape(50, 2, 50), parameters) == AttentionOnlyConfig(d=d, d_h=d_h, H=H)
