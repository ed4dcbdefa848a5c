"""Empirical laws that others reported, as bounds: to be drawn beside what is measured, and enforced nowhere."""

from __future__ import annotations

import math
from collections.abc import Callable

from membench.errors import NotApplicable
from membench.interface.bound import Bound, Setting, Vacuous
from membench.theory.counting import most_accurate, require_uniform_labels

NICHANI = (
    "Nichani, Lee, Bietti, 'Understanding Factual Recall in Transformers via Associative Memories', 2024, "
    "arXiv:2412.06538"
)
LIU = "Liu, 'Memory 2 -- How many bits does each parameter store? An analysis of MLP', blog notes, 2026"


def bits_law(name: str, bits: float, *, found: str, setting: str, reference: str, architecture: str | None) -> Bound:
    """So many bits in each parameter, as the accuracy that they pay for."""

    def value(at: Setting) -> float:
        require_uniform_labels(at.facts)
        if not at.parameters:
            raise NotApplicable("the number of parameters is not known here")
        if bits * at.parameters >= len(at.facts) * math.log2(at.shape.answers):
            raise Vacuous(f"{bits:g} bits in each of {at.parameters} parameters hold all labels")
        return most_accurate(bits * at.parameters, len(at.facts), at.shape.answers)

    return Bound(
        name=name,
        summary=found,
        formula=f"a with T0 (log2 A - h2(a) - (1-a) log2(A-1)) = {bits:g} P",
        latex=rf"T_0\left(\log_2A-h_2(a)-(1-a)\log_2(A-1)\right)={bits:g}\,P",
        quantity="accuracy",
        direction="reported",
        reference=reference,
        value=value,
        architecture=architecture,
        expected=True,
        restricted_to=setting,
    )


def guide_line(name: str, constant: float, *, size: str, numbers: Callable[[Setting], int], architecture: str) -> Bound:
    """Associations N at which N ln N times a constant is the size of an associative memory."""

    def value(at: Setting) -> float:
        return with_logarithm(numbers(at) / constant)

    return Bound(
        name=name,
        summary="The guide line in the plots of associations that are 99 % right.",
        formula=f"N with {constant:g} N ln N = {size}",
        latex=rf"{constant:g}\,N\ln N={size}",
        quantity="associations",
        direction="reported",
        reference=f"{NICHANI}, and its code",
        value=value,
        architecture=architecture,
        restricted_to="as many answers as inputs, each input with one of its own, Adam, 99 % right",
    )


def with_logarithm(target: float) -> float:
    """N > 1 with N ln N = target, by Newton's method on a convex, rising function."""
    N = 2.0
    for _ in range(100):
        N = max(1.0 + 1e-9, N - (N * math.log(N) - target) / (math.log(N) + 1))
    return N


def general_laws() -> list[Bound]:
    """What was reported of language models."""
    return [
        bits_law(
            "allen-zhu-li",
            2.0,
            found="Two bits in each parameter.",
            setting="language models on synthetic biographies, each seen 1,000 times",
            reference="Allen-Zhu, Li, 'Physics of Language Models: Part 3.3, Knowledge Capacity Scaling Laws', 2024, "
            "arXiv:2404.05405",
            architecture=None,
        ),
        bits_law(
            "morris",
            3.6,
            found="3.6 bits in each parameter.",
            setting="GPT-style language models of 500,000 to 1.5 billion parameters, on uniformly random sequences",
            reference="Morris et al., 'How much do language models memorize?', 2025, arXiv:2505.24832",
            architecture=None,
        ),
    ]
