"""Weights of the sequence encoder in closed form: Theorem 2's encoder, and the best that can be found.

Theorem 2 gives each answer a unit vector W_k and each context the vector scale(t) W_{g(t)}, with g(t) its most likely
answer. The scale solves the paper's equation (6), or minimises the divergence. Contexts outside the facts get zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from membench.api import Facts, NotApplicable
from membench.theory.certify import certify, certify_divergence
from membench.theory.encoders import entropy_scales, optimal_scales, scaled_divergences
from membench.theory.facts_profile import Profile, profile
from membench.theory.floor import best_encoder
from membench.theory.frames import Frame, candidate_frames, coherence, margin

if TYPE_CHECKING:
    from torch import nn

Array = NDArray[np.float64]

_SURE = 1e-9  # divergence at which a context without entropy is left, whose best scale is infinite


def equation_6(module: nn.Module, facts: Facts) -> Mapping[str, Any]:
    """Theorem 2's encoder: the scale at which log sum_j exp(scale (W_j - W_g).W_g) is the entropy of the context."""
    return _on_frame("equation-6", entropy_scales, module, facts)


def optimal_scale(module: nn.Module, facts: Facts) -> Mapping[str, Any]:
    """The same encoder with the scale of least divergence."""
    return _on_frame("optimal-scale", optimal_scales, module, facts)


def best_found(module: nn.Module, facts: Facts) -> Mapping[str, Any]:
    """The encoder of least divergence that was found by descending from several starts."""
    encoder = best_encoder(facts, module.get_parameter("unembed.weight").shape[1])
    _load(module, facts, encoder.W, encoder.E[profile(facts).row_of])
    return {"gradient_norm": encoder.gradient_norm, **_report("best-found", module, facts)}


def _on_frame(
    method: str, rule: Callable[[Profile, Frame], Array], module: nn.Module, facts: Facts
) -> Mapping[str, Any]:
    A, d = module.get_parameter("unembed.weight").shape
    if d == 1 and A > 2:
        raise NotApplicable(f"d=1 has two directions, and A={A} answers need one each")
    found = profile(facts)

    def divergence(frame: Frame) -> float:
        return float(found.mass @ scaled_divergences(found, frame, rule(found, frame)))

    frame = min(candidate_frames(A, d), key=divergence)
    scales = np.minimum(rule(found, frame), np.log((A - 1) / _SURE) / margin(frame))
    _load(module, facts, frame, (scales[:, None] * frame[found.labels])[found.row_of])
    aligned, opposed = coherence(frame)
    return {"mu_plus": aligned, "mu_minus": opposed, **_report(method, module, facts)}


def _load(module: nn.Module, facts: Facts, W: Array, E: Array) -> None:
    import torch

    N, S, _ = facts.shape
    rows = np.ravel_multi_index(tuple(facts.inputs.T), (N,) * S)  # tokens are the digits of a number in base N
    with torch.no_grad():
        module.get_parameter("table.weight").zero_()
        module.get_parameter("table.weight")[torch.from_numpy(rows)] = torch.from_numpy(np.array(E))
        module.get_parameter("unembed.weight").copy_(torch.from_numpy(np.array(W)))


def _report(method: str, module: nn.Module, facts: Facts) -> dict[str, Any]:
    everything = np.arange(len(facts))
    return {"method": method, **certify(module, facts, everything), **certify_divergence(module, facts)}
