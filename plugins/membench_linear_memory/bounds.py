"""What is proven about the linear associative memory."""

from __future__ import annotations

from membench.api import Bound, NotApplicable, Setting
from membench.theory.counting import as_accuracy, shattered
from membench.theory.divergence_bounds import DERIVED, Family
from membench.theory.reported_laws import LIU, NICHANI, bits_law, guide_line, with_logarithm

ARCHITECTURE = "linear-memory"


def _pseudo_inverse(setting: Setting) -> float:
    d: int = setting.config.d
    if d == 1 and setting.shape.answers > 2:
        raise NotApplicable("d=1, and then only two answers can ever be given; d >= 2 is needed")
    return min(len(setting.facts), d)


def _shattering(setting: Setting) -> float:
    return shattered(setting.shape.answers, setting.config.d**2)


def recalled(d: int) -> float:
    """T with T log T = d^2 / 2: where a learned matrix stops recalling all of an injective map, for large d."""
    return with_logarithm(d * d / 2)


def bounds() -> list[Bound]:
    family = Family(ARCHITECTURE, lambda config: config.d, "memory")
    pseudo_inverse = Bound(
        name="pseudo-inverse",
        summary="As many independent vectors as there are dimensions can be sent anywhere.",
        formula="min(T0, d)",
        latex=r"\min(T_0,d)",
        quantity="associations",
        direction="lower",
        reference=f"linear algebra; {DERIVED}",
        value=_pseudo_inverse,
        architecture=ARCHITECTURE,
    )
    return [
        pseudo_inverse,
        as_accuracy(pseudo_inverse, name="pseudo-inverse-accuracy", summary="The pseudo-inverse, and guesses."),
        Bound(
            name="memory-shattering",
            summary="The most contexts of which one matrix between frozen vectors can realise every labelling.",
            formula="T with T log A = log 2 + d^2 log(e T A(A-1) / (2 d^2))",
            latex=r"T\log A\le\log2+d^2\log\frac{eTA(A-1)}{2d^2}",
            quantity="capacity",
            direction="upper",
            reference=f"cells of an arrangement of hyperplanes (Cover 1965, Warren 1968); {DERIVED}",
            value=_shattering,
            architecture=ARCHITECTURE,
        ),
        Bound(
            name="memory-order",
            summary="Where a learned matrix stops recalling all of an injective map, asymptotically.",
            formula="T with T log T = d^2 / 2",
            latex=r"T\log T\sim d^2/2",
            quantity="associations",
            direction="order",
            reference=f"{NICHANI} for the order; the constant is Giorlandino et al. 2026",
            value=lambda setting: recalled(setting.config.d),
            architecture=ARCHITECTURE,
        ),
        guide_line(
            "nichani-linear",
            1.3,
            size="d^2",
            numbers=lambda setting: setting.config.d**2,
            architecture=ARCHITECTURE,
        ),
        bits_law(
            "liu-linear",
            1.0,
            found="One bit in each parameter of a linear layer.",
            setting="Gaussian keys of dimension 10, 10 random answers, Adam",
            reference=LIU,
            architecture=ARCHITECTURE,
        ),
        *family.limits(),
    ]
