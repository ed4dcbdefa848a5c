"""Family: the divergence bounds of one architecture, whose logits are linear in d numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from membench.errors import NotApplicable
from membench.interface.bound import Bound, Direction, Setting, Vacuous
from membench.theory.encoders import (
    base_terms,
    best_two_answers,
    coherence_divergence,
    entropy_scales,
    log_rank,
    optimal_scales,
    rank_floor,
    refined_divergence,
    scaled_divergences,
    spectral_divergence,
    theorem_2_constant,
    theorem_2_factor,
)
from membench.theory.facts_profile import (
    Array,
    Profile,
    entropy_of,
    marginal,
    profile,
    uniform_divergence,
)
from membench.theory.frames import Frame, candidate_frames

DANA = "Dana, Pydi, Chevaleyre, 'Memorization in Attention-only Transformers', 2024, arXiv:2411.10115"
DERIVED = "derived in docs/theory.md"


# As bounds.


@dataclass(frozen=True)
class Family:
    """The divergence bounds of one architecture, whose logits are linear in `width(config)` numbers."""

    architecture: str
    width: Callable[[Any], int]
    prefix: str  # of the bounds' names, which are one namespace for all plugins

    def d(self, setting: Setting) -> int:
        return self.width(setting.config)

    def bound(
        self,
        name: str,
        value: Callable[[Setting], float],
        *,
        summary: str,
        formula: str,
        latex: str,
        reference: str,
        direction: Direction = "upper",
        expensive: bool = False,
    ) -> Bound:
        return Bound(
            name=f"{self.prefix}-{name}",
            summary=summary,
            formula=formula,
            latex=latex,
            quantity="kl",
            direction=direction,
            reference=reference,
            value=value,
            architecture=self.architecture,
            expensive=expensive,
        )

    def limits(self) -> list[Bound]:
        """What no weights can do better than: for any model that ends in a linear map from R^d (Proposition 1)."""
        return [
            self.bound(
                "rank-floor",
                lambda setting: rank_floor(setting.facts, self.d(setting)),
                summary="No logits of rank d come closer to the facts.",
                formula="p_min pi_min eta(sum_{i>d} sigma_i(L_c)^2), eta(s) = (e^-r + r - 1)/2, r = sqrt(2s)",
                latex=r"p_{\min}\pi_{\min}\,\eta\Big(\sum_{i>d}\sigma_i(L_c)^2\Big),\quad"
                r"\eta(s)=\tfrac12\big(e^{-\sqrt{2s}}+\sqrt{2s}-1\big)",
                reference=f"Proposition 1 of {DANA}; the number is {DERIVED}",
                direction="lower",
            ),
            self._two_answers(),
        ]

    def _two_answers(self) -> Bound:
        def value(setting: Setting) -> float:
            if self.d(setting) != 1:
                raise NotApplicable(f"d={self.d(setting)}, and only d=1 leaves just two answers that can win")
            return best_two_answers(setting.facts)

        return Bound(
            name=f"{self.prefix}-two-answers",
            summary="In one dimension only the largest and the smallest unembedding can ever win.",
            formula="max_{k,l} sum_t p_t max(pi(k|t), pi(l|t))",
            latex=r"\max_{k,l}\sum_tp_t\max\big(\pi(k\mid t),\pi(l\mid t)\big)",
            quantity="accuracy",
            direction="upper",
            reference=DERIVED,
            value=value,
            architecture=self.architecture,
        )

    def constants(self) -> list[Bound]:
        """What constant logits reach: for any model that can ignore its context."""
        return [
            self.bound(
                "zero-logits",
                lambda setting: uniform_divergence(setting.facts),
                summary="All answers equally likely.",
                formula="log A - E[Hs]",
                latex=r"\log A-\mathbb E_t[H(\pi_t)]",
                reference="definition",
            ),
            self.bound(
                "unigram",
                lambda setting: entropy_of(marginal(setting.facts)) - profile(setting.facts).entropy,
                summary="The frequencies of the answers, whatever the context.",
                formula="I(context; answer)",
                latex=r"I(t;k)",
                reference="definition",
            ),
        ]

    def guarantees(self, reaches: Callable[[Setting], None]) -> list[Bound]:
        """What some weights reach, where `reaches` does not raise NotApplicable: upper bounds on F(pi, d)."""
        return [
            *self._zeros(reaches),
            *self._theorem_2(reaches),
            *self._encoders(reaches),
            self.bound(
                "spectral",
                _after(reaches, lambda setting: spectral_divergence(setting.facts, self.d(setting))),
                summary="The centred log-probabilities, cut off after d singular values.",
                formula="1/4 sum_{i>d} sigma_i(D_sqrt(p) L_c)^2",
                latex=r"\tfrac14\sum_{i>d}\sigma_i\big(D_{\sqrt p}L_c\big)^2",
                reference=DERIVED,
            ),
            self.bound(
                "floor",
                _after(reaches, self._floor),
                summary="The best divergence found by optimising a sequence encoder from several starts.",
                formula="min over starts of KL(pi, softmax(W E))",
                latex=r"\min_{W,E}\,\mathrm{KL}\big(\pi,\mathrm{softmax}(WE)\big)\ \text{(best found)}",
                reference=f"Proposition 1 of {DANA}; optimised",
                expensive=True,
            ),
        ]

    def _zeros(self, reaches: Callable[[Setting], None]) -> list[Bound]:
        return [
            self.bound(
                "proposition-2",
                _after(reaches, self._rank_is_enough),
                summary="Enough dimensions for every distribution, or for these.",
                formula="0 if d >= A-1, or if d >= rank(L_c) with full support",
                latex=r"0\quad\text{if } d\ge A-1\ \text{or}\ d\ge\operatorname{rank}L_c",
                reference=f"Proposition 2 of {DANA}; the rank condition is {DERIVED}",
            ),
            self.bound(
                "proposition-3",
                _after(reaches, self._circle_is_enough),
                summary="Two dimensions are enough for labels: the answers on a circle (an infimum, not reached).",
                formula="0 if d >= 2 and every context has one label",
                latex=r"0\quad\text{if } d\ge2\ \text{and}\ H(\pi_t)=0",
                reference=f"Proposition 3 of {DANA}",
            ),
        ]

    def _theorem_2(self, reaches: Callable[[Setting], None]) -> list[Bound]:
        return [
            self.bound(
                "theorem-2",
                _after(reaches, self._as_published),
                summary="Theorem 2 as published, with standard entropy.",
                formula="E[(1-pi_g) log((A-1)/(e^Hs-1))] (1+4C)/(1-2C), C = sqrt(32 log(A+1)/d)",
                latex=r"\mathbb E_t\Big[(1-\pi_g)\log\tfrac{A-1}{e^{H}-1}\Big]\tfrac{1+4C}{1-2C},\quad"
                r"C=\sqrt{32\log(A+1)/d}",
                reference=f"Theorem 2 of {DANA}",
            ),
            self.bound(
                "coherence",
                _after(reaches, self._on_frame(coherence_divergence)),
                summary="Theorem 2 with the coherence of an actual frame.",
                formula="E[(1-pi_g) log((A-1)/(e^Hs-1))] (1+mu_-)/(1-mu_+)",
                latex=r"\mathbb E_t\Big[(1-\pi_g)\log\tfrac{A-1}{e^{H}-1}\Big]\tfrac{1+\mu_-}{1-\mu_+}",
                reference=DERIVED,
                expensive=True,
            ),
            self.bound(
                "refined",
                _after(reaches, self._on_frame(refined_divergence)),
                summary="The coherence form, with the overlaps that the noise has.",
                formula="E[(1-pi_g) log((A-1)/(e^Hs-1)) (1 - mean_k W_k.W_g)]/(1-mu_+)",
                latex=r"\mathbb E_t\Big[\log\tfrac{A-1}{e^{H}-1}\sum_{k\ne g}\pi_k(1-W_k\!\cdot\!W_g)\Big]"
                r"\tfrac1{1-\mu_+}",
                reference=DERIVED,
                expensive=True,
            ),
        ]

    def _encoders(self, reaches: Callable[[Setting], None]) -> list[Bound]:
        return [
            self.bound(
                "equation-6",
                _after(reaches, self._on_frame(_divergence_at(entropy_scales))),
                summary="The divergence of Theorem 2's encoder itself.",
                formula="E[scale sum_k pi_k (W_g - W_k).W_g], scale from equation (6)",
                latex=r"\mathbb E_t\Big[\lambda\sum_k\pi_k(W_g-W_k)\!\cdot\!W_g\Big]",
                reference=f"Theorem 2 of {DANA}",
                expensive=True,
            ),
            self.bound(
                "optimal-scale",
                _after(reaches, self._on_frame(_divergence_at(optimal_scales))),
                summary="The same encoder with the scale of least divergence.",
                formula="E[min_scale KL(pi_t, softmax(scale W W_g))]",
                latex=r"\mathbb E_t\Big[\min_\lambda\mathrm{KL}\big(\pi_t,\mathrm{softmax}(\lambda WW_g)\big)\Big]",
                reference=DERIVED,
                expensive=True,
            ),
        ]

    def _on_frame(self, divergence: Callable[[Profile, Frame], float]) -> Callable[[Setting], float]:
        def value(setting: Setting) -> float:
            d, A = self.d(setting), setting.shape.answers
            if d == 1 and A > 2:
                raise NotApplicable(f"d=1 has two directions, and A={A} answers need one each")
            return min(divergence(profile(setting.facts), frame) for frame in candidate_frames(A, d))

        return value

    def _rank_is_enough(self, setting: Setting) -> float:
        d, A = self.d(setting), setting.shape.answers
        if d < A - 1 and d < (rank := log_rank(setting.facts)):
            raise NotApplicable(f"d={d} < A-1={A - 1}, and the centred log-probabilities have rank {rank}")
        return 0.0

    def _circle_is_enough(self, setting: Setting) -> float:
        if profile(setting.facts).entropies.max() > 0:
            raise NotApplicable("some context has more than one possible answer")
        if self.d(setting) < 2:
            raise NotApplicable("d=1, and the circle needs d >= 2")
        return 0.0

    def _as_published(self, setting: Setting) -> float:
        A, d = setting.shape.answers, self.d(setting)
        C = theorem_2_constant(A, d)
        if 2 * C >= 1:
            raise Vacuous(f"C={C:.4g} is not below 1/2: d > 128 log(A+1) = {128 * math.log(A + 1):.0f} is needed")
        found = profile(setting.facts)
        return float(found.mass @ base_terms(found)) * theorem_2_factor(C)

    def _floor(self, setting: Setting) -> float:
        from membench.theory.floor import floor

        return floor(setting.facts, [self.d(setting)], starts=4)[0].upper


def _after(reaches: Callable[[Setting], None], value: Callable[[Setting], float]) -> Callable[[Setting], float]:
    def checked(setting: Setting) -> float:
        reaches(setting)
        return value(setting)

    return checked


def _divergence_at(rule: Callable[[Profile, Frame], Array]) -> Callable[[Profile, Frame], float]:
    def divergence(found: Profile, frame: Frame) -> float:
        return float(found.mass @ scaled_divergences(found, frame, rule(found, frame)))

    return divergence
