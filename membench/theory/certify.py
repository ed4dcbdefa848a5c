"""Certificates: what an ordinary forward pass makes of constructed weights, in float64 and after rounding to float32.

No trust in a solver is needed: a context counts only if the model answers it, strictly.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from membench.interface.facts import Facts
from membench.theory.readout import lead

if TYPE_CHECKING:
    from torch import nn


def answers_of(facts: Facts) -> NDArray[np.int64]:
    """What is to be answered: the label, or the most likely answer, of each context."""
    return np.asarray(facts.targets if facts.is_association else facts.targets.argmax(axis=1), dtype=np.int64)


def certify(module: nn.Module, facts: Facts, chosen: NDArray[np.int64]) -> dict[str, Any]:
    """What the module makes of the chosen contexts: how many it answers right, by how much, and in float32."""
    answers = answers_of(facts)[chosen]
    leads = lead(_logits(module, facts.inputs[chosen]), answers)
    rounded = lead(_logits(copy.deepcopy(module).float(), facts.inputs[chosen]), answers)
    return {
        "memorised": len(chosen),  # planned
        "certified": int((leads > 0).sum()),
        "margin": float(leads.min()) if len(leads) else 0.0,
        "float32_memorised": int((rounded > 0).sum()),
    }


def certify_divergence(module: nn.Module, facts: Facts) -> dict[str, float]:
    """KL over all facts, in nats."""
    return {"kl": _divergence(module, facts), "float32_kl": _divergence(copy.deepcopy(module).float(), facts)}


def _divergence(module: nn.Module, facts: Facts) -> float:
    logits = _logits(module, facts.inputs)
    logits -= logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(logits).sum(axis=1)) - (facts.distributions() * logits).sum(axis=1)
    return float(facts.prior @ (losses - facts.entropies()))


def _logits(module: nn.Module, inputs: NDArray[np.int64]) -> NDArray[np.float64]:
    import torch

    with torch.inference_mode():
        return np.asarray(module(torch.from_numpy(inputs)).double().numpy())
