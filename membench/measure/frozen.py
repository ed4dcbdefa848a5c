"""Whether the weights alone answer as the trained model does, and the same twice: else no number is theirs."""

from __future__ import annotations

import torch
from torch import nn

from membench.measure.evaluate import InvalidOutput, logits_of

TOLERANCE = 1e-4  # of the largest logit: what is summed in another order differs by far less
MAX_ROWS = 4096  # contexts that are asked


class UnsavedState(Exception):
    """A model that answers by more than its state dict; the text says what to do."""


def check_frozen(module: nn.Module, tokens: torch.Tensor, trained: torch.Tensor | None) -> None:
    """That a freshly built module with the trained weights answers as the trained one did, and does so again.

    Weights that diverged are left to whoever measures them. Raises UnsavedState.
    """
    first, second = _ask(module, tokens), _ask(module, tokens)
    if gap := _gap(first, second):
        raise UnsavedState(
            f"asked the same questions twice, the model gives other logits (by up to {gap:.3g}): in eval mode its "
            f"forward must neither draw random numbers nor change what it keeps{_suspects(module)}; do so only if "
            "self.training"
        )
    if trained is not None and (gap := _gap(trained, first)):
        raise UnsavedState(
            f"the trained model's state_dict, loaded into a newly built one, gives other logits (by up to {gap:.3g}): "
            f"something that it answers by is not in the state_dict{_suspects(module)}; make it an nn.Parameter or a "
            "persistent buffer, or compute it in forward"
        )


def _ask(module: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            return logits_of(module(tokens)).clone()
    finally:
        module.train(was_training)


def _gap(one: torch.Tensor, other: torch.Tensor) -> float:
    """How far logits are apart, if that is more than rounding; 0 where they are not finite."""
    if one.shape != other.shape:
        raise InvalidOutput(f"the model returned logits of shape {list(one.shape)}, then of {list(other.shape)}")
    if not (torch.isfinite(one).all() and torch.isfinite(other).all()):
        return 0.0
    one, other = one.detach(), other.detach()  # a forward may switch gradients on
    gap, largest = float((one - other).abs().max()), float(one.abs().max())
    tolerance = max(TOLERANCE, 4 * torch.finfo(one.dtype).eps)
    return gap if gap > tolerance * max(largest, 1.0) else 0.0


def _suspects(module: nn.Module) -> str:
    """Tensors that a state dict leaves out: plain attributes, and buffers that are not persistent."""
    found = [
        f"'{name}.{key}'" if name else f"'{key}'"
        for name, part in module.named_modules()
        for key in [*(k for k, value in vars(part).items() if isinstance(value, torch.Tensor)),
                    *sorted(part._non_persistent_buffers_set)]
    ]  # fmt: skip
    return f" (perhaps {', '.join(found[:3])})" if found else ""
