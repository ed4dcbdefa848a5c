"""The pair MLP: an embedding for each position, added up into neurons, and one unembedding."""

from __future__ import annotations

from dataclasses import dataclass

from membench.api import Architecture, Bound, BudgetTooSmall, Shape, hookimpl, lazy, option


@dataclass(frozen=True, kw_only=True)
class PairMLPConfig:
    """Neurons that read the tokens of a context directly, and parts that can be added."""

    w: int = option(64, help="w, neurons", minimum=1)
    mixing: str = option("add", help="how the tokens of a context meet in a neuron", choices=("add", "multiply"))
    activation: str = option("relu", help="what a neuron makes of its input", choices=("relu", "gelu", "none"))
    bias: bool = option(False, help="neurons and answers have a bias")
    gate: bool = option(False, help="each neuron is multiplied by a second one without activation, as in a GLU")
    residual: bool = option(False, help="the unembedding also reads what goes into the neurons")
    norm: bool = option(False, help="what the unembedding reads has a mean square of 1")

    @property
    def is_plain(self) -> bool:
        """Whether it is the model that the theorems are about."""
        extras = self.bias or self.gate or self.residual or self.norm
        return self.mixing == "add" and self.activation == "relu" and not extras


def _for_budget(shape: Shape, parameters: int) -> PairMLPConfig:
    each = shape.length * shape.vocab + shape.answers
    if parameters < each:
        raise BudgetTooSmall(each)
    return PairMLPConfig(w=parameters // each)


ARCHITECTURE = Architecture(
    name="pair-mlp",
    summary="an embedding for each position, added up into ReLU neurons, and an unembedding",
    reference=(
        "Linsefors, Bushnaq, 'Challenge: Hand coding weights for efficient sequence memorisation', draft, 2026, "
        "the simplified model"
    ),
    config=PairMLPConfig,
    build=lazy("membench_pair_mlp.model:PairMLP"),
    bottleneck=lambda config: config.w + config.bias,
    # No parameters are declared as embeddings: all of them are tables over tokens or answers, and hold the facts.
    constructions={
        "gates": lazy("membench_pair_mlp.construct:gates"),
        "selector": lazy("membench_pair_mlp.construct:selector"),
    },
    kernel=lazy("membench_pair_mlp.kernel:make_trainer"),
    for_budget=_for_budget,
)


@hookimpl
def membench_architectures() -> list[Architecture[PairMLPConfig]]:
    return [ARCHITECTURE]


@hookimpl
def membench_bounds() -> list[Bound]:
    from membench_pair_mlp.bounds import bounds

    return bounds()
