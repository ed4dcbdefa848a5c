"""What is known about the MLP associative memory."""

from __future__ import annotations

from membench.api import Bound, NotApplicable, Setting
from membench.theory.divergence_bounds import Family
from membench.theory.reported_laws import LIU, NICHANI, bits_law, guide_line

ARCHITECTURE = "mlp-memory"
CLASSES = 32


def _size(setting: Setting) -> int:
    if setting.config.experts > 1 or setting.config.activation != "relu":
        raise NotApplicable("it was reported of ReLU neurons without experts")
    return int(setting.config.m * setting.config.d)


def _classes(setting: Setting) -> float:
    if setting.shape.answers != CLASSES:
        raise NotApplicable(f"A={setting.shape.answers}, and it was reported for {CLASSES} answers")
    return _size(setting) / 1.2


def bounds() -> list[Bound]:
    return [
        guide_line("nichani-mlp", 0.35, size="m d", numbers=_size, architecture=ARCHITECTURE),
        Bound(
            name="nichani-mlp-classes",
            summary=f"The guide line in the plot of associations with {CLASSES} answers that are 99 % right.",
            formula="N with 1.2 N = m d",
            latex=r"1.2\,N=m\,d",
            quantity="associations",
            direction="reported",
            reference=f"{NICHANI}, and its code",
            value=_classes,
            architecture=ARCHITECTURE,
            restricted_to=f"{CLASSES} answers, each of as many inputs, Adam, 99 % right",
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
