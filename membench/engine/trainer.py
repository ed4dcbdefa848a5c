"""The seam between protocols and the ways of training: R replicas, each with its own facts and weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from membench.interface.facts import Facts

if TYPE_CHECKING:
    import torch
    from torch import nn

EPSILON = 1e-8  # Adam's


@dataclass(frozen=True)
class Batches:
    """Sampled minibatches: for each replica and step, which contexts, and which answer was drawn for each."""

    contexts: NDArray[np.int64]  # [R, steps, batch], rows of that replica's facts
    labels: NDArray[np.int64]  # [R, steps, batch]


@dataclass(frozen=True)
class Progress:
    """What was seen on the way: at each step, before its update, on that step's batch (or on all facts)."""

    loss: NDArray[np.float32]  # [R, steps], mean cross-entropy in nats
    accuracy: NDArray[np.float32]  # [R, steps]


class Trainer(Protocol):
    """Replicas of one model, advanced together by Adam."""

    def advance(self, rates: NDArray[np.float32], batches: Batches | None = None) -> Progress:
        """Take `rates.shape[1]` Adam steps with the learning rates float32[R, steps].

        Without batches each step uses the exact gradient over all facts, weighted by their prior.
        A replica whose rates are all zero is left alone and costs nothing; its progress is NaN.
        """
        ...

    def state(self, replica: int) -> dict[str, torch.Tensor]:
        """The `state_dict` of one replica's module as it stands now; the trainer keeps no hold on it."""
        ...


# kernel(modules, facts, betas): a Trainer that starts from the modules' weights, which it copies.
# `betas` is float32[R, 2]. Raises NotApplicable with the reason when it does not cover the models.
Kernel = Callable[[Sequence["nn.Module"], Sequence[Facts], NDArray[np.float32]], Trainer]
