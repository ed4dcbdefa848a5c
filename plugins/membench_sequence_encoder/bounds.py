"""What is proven about the sequence encoder: all that is known of F(pi, d) is about it."""

from __future__ import annotations

from membench.api import Bound, NotApplicable, Setting
from membench.theory.divergence_bounds import DANA, Family

ARCHITECTURE = "sequence-encoder"


def _memorises_all(setting: Setting) -> float:
    if setting.config.d == 1 and setting.shape.answers > 2:
        raise NotApplicable("d=1, and then only two answers can ever be given; d >= 2 is needed")
    return len(setting.facts)


def _always(setting: Setting) -> None:
    """A table gives every context any vector."""


def bounds() -> list[Bound]:
    family = Family(ARCHITECTURE, lambda config: config.d, "encoder")
    return [
        Bound(
            name="encoder-circle",
            summary="Two dimensions are enough for any labels: the answers on a circle.",
            formula="T0 if d >= 2",
            latex=r"T_0\quad\text{if } d\ge2",
            quantity="associations",
            direction="lower",
            reference=f"Proposition 3 of {DANA}",
            value=_memorises_all,
            architecture=ARCHITECTURE,
        ),
        *family.limits(),
        *family.constants(),
        *family.guarantees(_always),
    ]
