"""What is proven about the pair MLP."""

from __future__ import annotations

import numpy as np

from membench.api import Bound, NotApplicable, Setting
from membench.theory.counting import as_accuracy
from membench.theory.divergence_bounds import DERIVED, Family
from membench_pair_mlp.patterns import solvable

ARCHITECTURE = "pair-mlp"
CHALLENGE = "Linsefors, Bushnaq, 'Challenge: Hand coding weights for efficient sequence memorisation', draft, 2026"


def _neurons(setting: Setting) -> int:
    """Those beside the constant one."""
    if not setting.config.is_plain:
        raise NotApplicable("the model is not the plain one: ReLU neurons that add, and none of the extras")
    if setting.shape.length != 2:
        raise NotApplicable(f"contexts have S={setting.shape.length} tokens, and the theorem is about pairs")
    return int(setting.config.w) - 1


def _selector(setting: Setting) -> float:
    """All facts with the most frequent second tokens, as many of these as there are neurons for them."""
    neurons, facts = _neurons(setting), setting.facts
    counts = np.sort(np.bincount(facts.inputs[:, 1]))[::-1]
    return float(counts[:neurons].sum())


def _gates(setting: Setting) -> float:
    neurons = _neurons(setting)
    if neurons < 2:
        raise NotApplicable(f"w={setting.config.w}, and gates of both signs need w >= 3")
    return max(float(len(solvable(setting.facts, neurons))), _selector(setting))


def bounds() -> list[Bound]:
    family = Family(ARCHITECTURE, lambda config: config.w + config.bias, "pair")
    selector = Bound(
        name="pair-selector",
        summary="A neuron for each second token, which lets the first token's answer for it through.",
        formula="facts with the w - 1 most frequent second tokens; all of them with w = N + 1",
        latex=r"\sum_{b\in B}|\{t:\,t_2=b\}|,\ |B|=w-1",
        quantity="associations",
        direction="lower",
        reference=f"{CHALLENGE}, Appendix A, for all N^2 facts; {DERIVED}",
        value=_selector,
        architecture=ARCHITECTURE,
    )
    gates = Bound(
        name="pair-gates",
        summary="Tokens of one position open neurons, and the others solve a linear equation for each fact.",
        formula="sum_a rank(patterns of the tokens that occur with a); min(T_a, w - 1) each for patterns in general "
        "position",
        latex=r"\sum_a\operatorname{rank}\,(G_b)_{b:\,(a,b)\in\mathcal T}",
        quantity="associations",
        direction="lower",
        reference=DERIVED,
        value=_gates,
        architecture=ARCHITECTURE,
        expensive=True,
    )
    return [
        selector,
        as_accuracy(selector, name="pair-selector-accuracy", summary="The selector, and guesses."),
        gates,
        as_accuracy(gates, name="pair-gates-accuracy", summary="The gates, and guesses."),
        *family.limits(),
    ]
