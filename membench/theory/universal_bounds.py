"""Bounds that hold for every model, and results about others that are drawn beside them."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from membench.errors import NotApplicable
from membench.interface.bound import Bound, Setting, Vacuous
from membench.interface.facts import Facts
from membench.interface.hookspecs import hookimpl
from membench.theory.counting import most_accurate, require_uniform_labels
from membench.theory.facts_profile import joint_with_last, marginal
from membench.theory.reported_laws import general_laws

DERIVED = "derived in docs/theory.md"
_TABULATED = 4000  # contexts with one last token for which the expected majority is worked out


def zero_head_accuracy(facts: Facts) -> float:
    """The accuracy of the best answer that looks at the last token only."""
    return float(joint_with_last(facts).max(axis=1).sum())


def expected_zero_head(facts: Facts) -> float:
    """The same on average over independent, uniformly random labels, for a uniform prior."""
    counts = np.bincount(facts.inputs[:, -1])
    sizes, times = np.unique(counts[counts > 0], return_counts=True)
    if sizes.max() > _TABULATED:
        raise NotApplicable(f"{sizes.max()} contexts share a last token, more than the {_TABULATED} worked out")
    most = sum(int(k) * expected_majority(int(n), facts.answers) for n, k in zip(sizes, times, strict=True))
    return most / len(facts)


@functools.lru_cache(maxsize=4096)
def expected_majority(draws: int, A: int) -> float:
    """The mean of the largest count when `draws` labels are drawn uniformly among A: E max Multinomial(draws, 1/A).

    P(max <= m) is the coefficient of x^draws in (sum_{j<=m} x^j / j!)^A, times draws! / A^draws; with Poisson
    weights instead of 1/j! every number stays between 0 and 1.
    """
    mean = draws / A
    weights = _poisson(mean, draws)
    certain = _poisson(float(draws), draws)[-1]
    total = 0.0
    for most in range(draws):
        within = min(1.0, _power_coefficient(weights[: most + 1], A, draws) / certain)  # P(max <= most)
        total += 1 - within
        if 1 - within < 1e-13 and most > mean:
            break
    return total


def _poisson(mean: float, highest: int) -> NDArray[np.float64]:
    counts = np.arange(1, highest + 1)
    logs = -mean + np.concatenate([[0.0], np.cumsum(np.log(mean) - np.log(counts))])
    return np.asarray(np.exp(logs), dtype=np.float64)


def _power_coefficient(polynomial: NDArray[np.float64], power: int, degree: int) -> float:
    """The coefficient of x^degree in polynomial^power, whose coefficients are positive: through a Fourier transform."""
    top = (len(polynomial) - 1) * power
    if top < degree:
        return 0.0
    transform = np.fft.rfft(polynomial, n=1 << int(top).bit_length())
    return float(np.fft.irfft(transform**power)[degree])


def _parameters(setting: Setting) -> int:
    if setting.parameters is None:
        raise NotApplicable("the number of parameters is not known here")
    if setting.parameters == 0:
        raise NotApplicable("the model has no parameters")
    return setting.parameters


def _stored_bits(setting: Setting) -> int:
    parameters = _parameters(setting)
    if setting.bits is None:
        raise NotApplicable("the number of bits of a parameter is not known here")
    return setting.bits * parameters


def _information(setting: Setting) -> float:
    require_uniform_labels(setting.facts)
    stored = _stored_bits(setting)
    needed = len(setting.facts) * math.log2(setting.shape.answers)
    if stored >= needed:
        raise Vacuous(f"{stored} stored bits hold the {needed:.0f} bits of all labels")
    return most_accurate(stored, len(setting.facts), setting.shape.answers)


def _information_capacity(setting: Setting) -> float:
    return _stored_bits(setting) / math.log2(setting.shape.answers)


def _required_bits(setting: Setting) -> float:
    require_uniform_labels(setting.facts)
    return len(setting.facts) * math.log2(setting.shape.answers) / _parameters(setting)


def _expected_zero_head(setting: Setting) -> float:
    require_uniform_labels(setting.facts)
    return expected_zero_head(setting.facts)


def _kim(setting: Setting) -> float:
    """N is the dimension of one-hot tokens; the answer is a single number there, whatever A is."""
    T0 = len(setting.facts)
    return setting.shape.length + setting.shape.vocab + math.sqrt(T0 * math.log(T0))


def _kajitsuka_sato_bits(setting: Setting) -> float:
    """The bits of all labels, shared by the parameters that they are said to need."""
    require_uniform_labels(setting.facts)
    return math.sqrt(len(setting.facts)) * math.log2(setting.shape.answers)


def _madden(setting: Setting) -> float:
    return _parameters(setting) / (setting.shape.answers - 1)


def universal_bounds() -> list[Bound]:
    return [*_reference_values(), *_limits(), *_information_bounds(), *_orders(), *general_laws()]


def _reference_values() -> list[Bound]:
    return [
        Bound(
            name="chance",
            summary="A guess among the A answers.",
            formula="1/A",
            latex=r"1/A",
            quantity="accuracy",
            direction="reference",
            reference="definition",
            value=lambda setting: 1 / setting.shape.answers,
        ),
        Bound(
            name="constant",
            summary="The best answer that ignores the context.",
            formula="max_k sum_t p_t pi(k|t)",
            latex=r"\max_k\sum_t p_t\,\pi(k\mid t)",
            quantity="accuracy",
            direction="reference",
            reference="definition",
            value=lambda setting: float(marginal(setting.facts).max()),
        ),
        Bound(
            name="zero-head",
            summary="The best answer that looks at the last token only: what no attention at all reaches.",
            formula="sum_q max_k sum_{t: t_S=q} p_t pi(k|t)",
            latex=r"\sum_q\max_k\sum_{t:\,t_S=q}p_t\,\pi(k\mid t)",
            quantity="accuracy",
            direction="reference",
            reference=DERIVED,
            value=lambda setting: zero_head_accuracy(setting.facts),
        ),
        Bound(
            name="zero-head-expected",
            summary="The same on average over random labels: what a curve over many tables starts from.",
            formula="sum_q E[max Multinomial(n_q, 1/A)] / T0 with n_q contexts ending in q",
            latex=r"\frac1{T_0}\sum_q\mathbb E\left[\max\mathrm{Multinomial}(n_q,1/A)\right]",
            quantity="accuracy",
            direction="reference",
            reference=DERIVED,
            value=_expected_zero_head,
            expected=True,
            expensive=True,
        ),
    ]


def _limits() -> list[Bound]:
    return [
        Bound(
            name="bayes",
            summary="The best that any model can do.",
            formula="sum_t p_t max_k pi(k|t)",
            latex=r"\sum_t p_t\max_k\pi(k\mid t)",
            quantity="accuracy",
            direction="upper",
            reference="definition",
            value=lambda setting: setting.facts.bayes_accuracy(),
        ),
        Bound(
            name="support",
            summary="Nothing is memorised that is not asked.",
            formula="T0 <= N^S",
            latex=r"T_0\le N^S",
            quantity="associations",
            direction="upper",
            reference="definition",
            value=lambda setting: len(setting.facts),
        ),
    ]


_RATE_DISTORTION = "rate-distortion of a uniform source under Hamming distortion (Shannon 1959); docs/theory.md"


def _information_bounds() -> list[Bound]:
    return [
        Bound(
            name="information",
            summary="The accuracy that the bits of all parameters can pay for.",
            formula="a with T0 (log2 A - h2(a) - (1-a) log2(A-1)) = b P",
            latex=r"T_0\left(\log_2A-h_2(a)-(1-a)\log_2(A-1)\right)\le bP",
            quantity="accuracy",
            direction="upper",
            reference=_RATE_DISTORTION,
            value=_information,
            expected=True,
        ),
        Bound(
            name="information-capacity",
            summary="The most contexts whose every labelling the bits of all parameters can tell apart.",
            formula="b P / log2 A",
            latex=r"bP/\log_2A",
            quantity="capacity",
            direction="upper",
            reference=_RATE_DISTORTION,
            value=_information_capacity,
        ),
        Bound(
            name="required-bits",
            summary="Bits that each parameter must hold if all facts are memorised.",
            formula="T0 log2 A / P",
            latex=r"T_0\log_2A/P",
            quantity="bits_per_parameter",
            direction="lower",
            reference=_RATE_DISTORTION,
            value=_required_bits,
            expected=True,
            restricted_to="models that memorise all facts",
        ),
    ]


_KAJITSUKA_SATO = "Kajitsuka, Sato, 'On the Optimal Memorization Capacity of Transformers', ICLR 2025, arXiv:2409.17677"
MADDEN = (
    "Madden, Fox, Thrampoulidis, 'Next-token prediction capacity: general upper bounds and a lower bound for "
    "transformers', 2024, arXiv:2405.13718"
)


def _orders() -> list[Bound]:
    return [
        Bound(
            name="kim",
            summary="Parameters that suffice for a deep transformer with narrow MLPs.",
            formula="S + N + sqrt(T0 log T0)",
            latex=r"O\left(S+N+\sqrt{T_0\log T_0}\right)",
            quantity="parameters",
            direction="order",
            reference="Kim, Kim, Mozafari, 'Provable Memorization Capacity of Transformers', ICLR 2023",
            value=_kim,
        ),
        Bound(
            name="kajitsuka-sato",
            summary="Parameters that a deep transformer needs, and that suffice for it, however long contexts are.",
            formula="sqrt(T0), up to logarithms",
            latex=r"\tilde\Theta\left(\sqrt{T_0}\right)",
            quantity="parameters",
            direction="order",
            reference=_KAJITSUKA_SATO,
            value=lambda setting: math.sqrt(len(setting.facts)),
        ),
        Bound(
            name="kajitsuka-sato-bits",
            summary="Bits that each of so few parameters must hold, because together they hold all labels.",
            formula="sqrt(T0) log2 A, up to logarithms",
            latex=r"\tilde\Omega\left(\sqrt{T_0}\log_2A\right)",
            quantity="bits_per_parameter",
            direction="order",
            reference=f"{_KAJITSUKA_SATO}; {DERIVED}",
            value=_kajitsuka_sato_bits,
            expected=True,
        ),
        Bound(
            name="madden-upper",
            summary="No model meets arbitrary distributions over the answers of more contexts.",
            formula="P/(A-1), up to a constant",
            latex=r"O\left(\frac P{A-1}\right)",
            quantity="capacity",
            direction="order",
            reference=MADDEN,
            value=_madden,
        ),
    ]


@hookimpl
def membench_bounds() -> list[Bound]:
    return universal_bounds()
