"""The two architectures that are tables over contexts: sequence encoder and look-up."""

from __future__ import annotations

import itertools

import pytest
import torch

from membench.api import Shape
from membench_lookup import ARCHITECTURE as LOOKUP
from membench_lookup import LookupConfig
from membench_lookup.model import Lookup
from membench_sequence_encoder import ARCHITECTURE as ENCODER
from membench_sequence_encoder import SequenceEncoderConfig
from membench_sequence_encoder.model import SequenceEncoder


@pytest.mark.parametrize(("N", "S", "d", "parameters"), [(50, 2, 10, 25500), (10, 2, 2, 220), (10, 3, 5, 5050)])
def test_a_sequence_encoder_has_a_row_for_each_context_and_token(N: int, S: int, d: int, parameters: int) -> None:
    module = SequenceEncoder(Shape(N, S, N), SequenceEncoderConfig(d=d))
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == {
        "table.weight": (N**S, d),
        "unembed.weight": (N, d),
    }
    assert sum(p.numel() for p in module.parameters()) == parameters


def test_a_look_up_table_has_a_logit_for_each_context_and_token() -> None:
    module = Lookup(Shape(10, 2, 10), LookupConfig())
    assert {name: tuple(p.shape) for name, p in module.named_parameters()} == {"table.weight": (100, 10)}
    assert LookupConfig() == LookupConfig()


@pytest.mark.parametrize("shape", [Shape(5, 1, 5), Shape(4, 2, 4), Shape(3, 3, 3)])
@torch.no_grad()
def test_contexts_are_numbers_whose_digits_are_tokens(shape: Shape) -> None:
    tokens = torch.tensor(list(itertools.product(range(shape.vocab), repeat=shape.length)))
    order = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(0))
    lookup = Lookup(shape, LookupConfig())
    torch.testing.assert_close(lookup(tokens[order]), lookup.table.weight[order])
    encoder = SequenceEncoder(shape, SequenceEncoderConfig(d=2))
    expected = encoder.table.weight @ encoder.unembed.weight.T
    torch.testing.assert_close(encoder(tokens[order]), expected[order])


@torch.no_grad()
def test_the_rank_of_a_sequence_encoder_is_d() -> None:
    shape = Shape(8, 2, 8)
    tokens = torch.tensor(list(itertools.product(range(8), repeat=2)))
    logits = SequenceEncoder(shape, SequenceEncoderConfig(d=3)).double()(tokens)
    assert torch.linalg.matrix_rank(logits) == 3
    assert torch.linalg.matrix_rank(Lookup(shape, LookupConfig()).double()(tokens)) == 8


def test_tables_that_are_too_large_are_refused_before_they_are_made() -> None:
    assert ENCODER.check is not None
    assert LOOKUP.check is not None
    ENCODER.check(Shape(2236, 2, 2236), SequenceEncoderConfig())
    with pytest.raises(ValueError, match=r"200\^3 = 8,000,000 rows .* at most 5,000,000"):
        ENCODER.check(Shape(200, 3, 200), SequenceEncoderConfig())
    LOOKUP.check(Shape(368, 2, 368), LookupConfig())
    with pytest.raises(ValueError, match=r"400\^2 x 400 = 64,000,000 logits .* at most 50,000,000"):
        LOOKUP.check(Shape(400, 2, 400), LookupConfig())


@pytest.mark.parametrize(("parameters", "d"), [(2550, 1), (25500, 10), (25499, 9), (10**6, 50)])
def test_a_budget_buys_dimensions_up_to_the_vocabulary(parameters: int, d: int) -> None:
    assert ENCODER.for_budget is not None
    assert ENCODER.for_budget(Shape(50, 2, 50), parameters) == SequenceEncoderConfig(d=d)
