"""The layers that come with torch: their functions, initial weights and numbers of parameters are torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from membench.api import Shape
from membench_torch import ENCODER, GATES, GRU, LSTM, EncoderConfig, RecurrentConfig, count_encoder, count_recurrent
from membench_torch import model as models

SHAPE = Shape(7, 3, 5)
TOKENS = torch.randint(7, (20, 3), generator=torch.Generator().manual_seed(0))
RECURRENT = [("lstm", models.LSTM, nn.LSTM), ("gru", models.GRU, nn.GRU)]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("name", "ours", "torchs"), RECURRENT)
@torch.no_grad()
def test_recurrent_layers_compute_what_those_of_torch_do(name: str, ours: Any, torchs: Any, layers: int) -> None:
    module = ours(SHAPE, RecurrentConfig(d=4, w=6, layers=layers))
    whole = torchs(4, 6, layers, batch_first=True)
    for number, cell in enumerate(module.cells):
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            getattr(whole, f"{kind}_l{number}").copy_(getattr(cell, kind))
    expected = module.unembed(whole(module.word(TOKENS))[0][:, -1])
    torch.testing.assert_close(module(TOKENS), expected)


@pytest.mark.parametrize(("name", "ours", "torchs"), RECURRENT)
def test_initial_weights_are_those_of_torch(name: str, ours: Any, torchs: Any) -> None:
    """Seeded alike, word for word: nothing is drawn again after torch has."""
    torch.manual_seed(3)
    module = ours(SHAPE, RecurrentConfig(d=4, w=6))
    torch.manual_seed(3)
    word, layer, unembed = nn.Embedding(7, 4), torchs(4, 6, batch_first=True), nn.Linear(6, 5, bias=False)
    for mine, other in ((module.word, word), (module.unembed, unembed)):
        assert torch.equal(mine.weight, other.weight)
    assert all(map(torch.equal, module.cells[0].parameters(), layer.parameters()))


@pytest.mark.parametrize("options", [{}, {"layers": 3}, {"d": 5, "w": 9, "layers": 2}])
def test_parameters_are_counted_as_they_are(options: dict[str, int]) -> None:
    for architecture in (LSTM, GRU):
        config = RecurrentConfig(**options)
        built = sum(p.numel() for p in architecture.build(SHAPE, config).parameters())
        assert built == count_recurrent(SHAPE, config, GATES[architecture.name])
    wide = EncoderConfig(**{**options, "heads": 1})
    assert sum(p.numel() for p in ENCODER.build(SHAPE, wide).parameters()) == count_encoder(SHAPE, wide)


def test_heads_divide_the_stream() -> None:
    with pytest.raises(ValueError, match="heads=3 must divide d=8"):
        EncoderConfig(d=8, heads=3)


def test_dropout_is_off_by_default_and_never_asked_when_measured() -> None:
    assert not any(one.p for one in ENCODER.build(SHAPE, EncoderConfig()).modules() if isinstance(one, nn.Dropout))
    noisy = ENCODER.build(SHAPE, EncoderConfig(dropout=0.5))
    assert not torch.equal(noisy(TOKENS), noisy(TOKENS))
    noisy.eval()
    assert torch.equal(noisy(TOKENS), noisy(TOKENS))


@pytest.mark.parametrize("architecture", [LSTM, GRU], ids=lambda one: one.name)
@pytest.mark.parametrize("N", [20, 50, 64])
@pytest.mark.parametrize("budget", [1000, 3000, 10_000])
def test_a_budget_is_nearly_used_up(architecture: Any, N: int, budget: int) -> None:
    shape = Shape(N, 2, N)
    config = architecture.for_budget(shape, budget)
    assert 0.93 * budget < count_recurrent(shape, config, GATES[architecture.name]) <= budget
    assert 0.4 < config.d / config.w < 1.3


@pytest.mark.parametrize("name", ["lstm", "gru", "transformer-encoder"])
def test_they_learn(name: str, tmp_path: Any) -> None:
    import membench

    run = {"T": {"N": 6}, "protocol": "quick", "P": {"steps": 150}, "out": tmp_path, "progress": False}
    (row,) = membench.run(name, "bigram", seeds=2, **run).summary().to_dict("records")
    assert row["accuracy"] > 0.9
    (record, _) = membench.load(tmp_path).records
    assert record.trace["paths"] == ["general"]
    assert not any("one by one" in note for note in record.trace["notes"])
