"""What is known about the MLP associative memory."""

from __future__ import annotations

from membench.api import Bound
from membench.theory.divergence_bounds import Family
from membench.theory.reported_laws import LIU, bits_law, guide_line

ARCHITECTURE = "mlp-memory"


def bounds() -> list[Bound]:
    return [
        guide_line(
            "nichani-mlp",
            0.35,
            size="m d",
            numbers=lambda setting: setting.config.m * setting.config.d,
            architecture=ARCHITECTURE,
        ),
        bits_law(
            "liu-mlp",
            2.4,
            found="2.4 bits in each parameter of a two-layer MLP.",
            setting="Gaussian keys of dimension 10, 10 random answers, Adam, any width",
            reference=LIU,
            architecture=ARCHITECTURE,
        ),
        *Family(ARCHITECTURE, lambda config: config.d, ARCHITECTURE).limits(),
    ]
