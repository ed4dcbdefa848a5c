"""What a question costs: which numbers a model reads, and how much it multiplies."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from membench.interface.facts import Shape
from membench.interface.registry import Registry
from membench.measure.questions import Question, ask_one_by_one
from membench.measure.size import Size, count_size, describe_fresh

SHAPE = Shape(7, 2, 7)
TOKENS = torch.tensor([[1, 2], [3, 3]])


class Table(nn.Module):
    """Rows of a table, by one of the operations that look something up, and a matrix."""

    def __init__(self, how: str = "embedding", dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.how = how
        self.word = nn.Parameter(torch.randn(7, 3).to(dtype))
        self.out = nn.Parameter(torch.randn(7, 3).to(dtype))
        self.unused = nn.Parameter(torch.zeros(5))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.rows(tokens).real @ self.out.real.T

    def rows(self, tokens: Tensor) -> Tensor:
        if self.how == "embedding":
            return nn.functional.embedding(tokens, self.word).sum(1)
        if self.how == "bag":
            return nn.functional.embedding_bag(tokens, self.word, mode="sum")
        if self.how == "index":
            return self.word[tokens].sum(1)
        if self.how == "columns":
            return self.word.T[:, tokens].sum(2).T
        if self.how == "select":
            return self.word.index_select(0, tokens.flatten()).view(*tokens.shape, -1).sum(1)
        if self.how == "gather":
            return self.word.gather(0, tokens[:, :1].expand(-1, 3)) + self.word.gather(0, tokens[:, 1:].expand(-1, 3))
        return nn.functional.one_hot(tokens, 7).sum(1).to(self.word.dtype) @ self.word  # reads all of it


@pytest.mark.parametrize("how", ["embedding", "bag", "index", "columns", "select", "gather"])
def test_of_a_table_only_the_rows_that_are_looked_up_are_read(how: str) -> None:
    two, one = ask_one_by_one(Table(how), TOKENS)
    assert two.read == {"word": 2 * 3 * 4, "out": 7 * 3 * 4, "unused": 0}
    assert one.read["word"] == 3 * 4  # the same token twice
    assert two.flops == 2 * 3 * 7


def test_a_product_reads_its_whole_matrix() -> None:
    assert ask_one_by_one(Table("product"), TOKENS)[0].read["word"] == 7 * 3 * 4


def size_of(module: nn.Module) -> Size:
    fresh = describe_fresh(module)
    return count_size(module.state_dict(), fresh, SHAPE, questions=ask_one_by_one(module, TOKENS))


def test_active_parameters_are_those_of_the_question_that_reads_most() -> None:
    size = size_of(Table())
    assert (size.active, size.parameters) == (2 * 3 + 7 * 3, 2 * 7 * 3 + 5)
    assert size_of(Table("index", torch.complex64)).active == 2 * 2 * 3 + 7 * 3  # of `out` the real parts alone


def test_a_shared_tensor_is_read_once() -> None:
    model = Table()
    model.out = model.word
    assert size_of(model).active == 7 * 3


def test_a_frozen_buffer_is_not_active() -> None:
    model = Table()
    model.register_buffer("noise", torch.randn(7))
    model.register_forward_hook(lambda module, given, logits: logits + model.noise)
    assert size_of(model).active == 2 * 3 + 7 * 3


class Layers(nn.Module):
    """What torch would compute in one opaque step where it can."""

    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(7, 4)
        self.lstm = nn.LSTM(4, 4, bias=False, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, bias=False, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        stream, _ = self.lstm(self.word(tokens))
        stream, _ = self.attention(stream, stream, stream, need_weights=False)
        return stream[:, -1] @ self.word.weight.T


def test_the_layers_of_torch_are_counted_as_the_products_that_they_are_made_of() -> None:
    recurrent = 2 * 2 * (2 * 4 * 16)  # two tokens: input and state to four gates
    attention = 2 * 2 * 4 * 12 + 2 * (2 * 2 * 2 * 2 * 2) + 2 * 2 * 4 * 4  # in, scores and mixtures of two heads, out
    assert ask_one_by_one(Layers(), TOKENS)[0].flops == recurrent + attention + 2 * 4 * 7


class Opaque(Table):
    def rows(self, tokens: Tensor) -> Tensor:
        return super().rows(tokens) + torch.linalg.solve(torch.eye(3), torch.ones(3))


def test_what_the_counter_of_torch_does_not_know_makes_the_number_unknown() -> None:
    assert [one.flops for one in ask_one_by_one(Opaque(), TOKENS)] == [None, None]
    assert size_of(Opaque()).flops is None
    assert size_of(Opaque()).active == 2 * 3 + 7 * 3


class OnlyTogether(Table):
    def forward(self, tokens: Tensor) -> Tensor:
        if len(tokens) < 2:
            raise ValueError("too few")
        return super().forward(tokens)


def test_a_model_that_takes_no_single_question_has_no_such_numbers() -> None:
    assert ask_one_by_one(OnlyTogether(), TOKENS) == []
    assert (size_of(OnlyTogether()).active, size_of(OnlyTogether()).flops) == (None, None)


def test_asking_leaves_no_trace() -> None:
    model = Table().train()
    before = torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled
    ask_one_by_one(model, TOKENS)
    assert model.training
    assert (torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled) == before


@pytest.mark.parametrize("name", sorted(Registry().installed))
def test_every_built_in_model_says_what_a_question_costs(name: str) -> None:
    architecture = Registry().installed[name]
    config = architecture.config()
    questions = ask_one_by_one(architecture.build(SHAPE, config), TOKENS)
    assert len(questions) == 2
    for question in questions:
        assert isinstance(question, Question)
        assert question.flops is not None
        assert sum(question.read.values()) > 0


def test_attention_carries_more_the_more_positions_there_are_and_a_recurrent_layer_does_not() -> None:
    known = Registry().architectures
    for name, grows in {"aot": True, "mlp-transformer": True, "lstm": False, "gru": False, "mamba": False}.items():
        count, config = known[name].state, known[name].config()
        assert count
        assert (count(SHAPE, config) < count(SHAPE._replace(length=3), config)) is grows, name
    assert known["aot"].state(SHAPE, known["aot"].config(d=4, d_h=2, H=3)) == 2 * 2 * 3  # type: ignore[misc]
    assert known["lstm"].state(SHAPE, known["lstm"].config(d=4, w=5, layers=2)) == 2 * 5 * 2  # type: ignore[misc]


def test_the_mixture_counts_the_experts_that_it_would_ask_if_it_were_sparse() -> None:
    architecture = Registry().architectures["moe"]
    config = architecture.config(d=4, experts=5, k=2, w=3)
    module = architecture.build(SHAPE, config)
    assert architecture.active
    unused = 3 * (2 * 4 * 3 + 3)  # three experts
    unasked = 2 * (7 - 1) * 4  # rows of two tables
    assert architecture.active(SHAPE, config) == sum(p.numel() for p in module.parameters()) - unused - unasked
    everything = replace(config, k=5)
    read = [sum(one.read.values()) for one in ask_one_by_one(architecture.build(SHAPE, everything), TOKENS)]
    assert read == [4 * architecture.active(SHAPE, everything)] * 2
