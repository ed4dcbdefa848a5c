"""Ask a model every fact once, with frozen weights: its metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from membench.interface.facts import Facts
from membench.measure.metrics import RECALLS, recall_name
from membench.theory.counting import associations_of, has_uniform_labels, rate

CHUNK = 1 << 22  # logits evaluated at once, so that memory does not grow with the number of facts


class InvalidOutput(Exception):
    """A model that answered with something that is not logits; the text says what it was."""


@dataclass(frozen=True)
class Metrics:
    """What a model knows. Bits are counted against a uniform guess: sum over contexts of log2 A - CE/ln 2."""

    accuracy: float  # prior-weighted probability that the answer is right; a tie is wrong
    kl: float  # KL(facts || model) in nats
    associations: float  # T0 (accuracy - 1/A) / (1 - 1/A)
    bits: float
    bits_per_parameter: float | None
    bits_of_accuracy: float | None  # T0 (log2 A - h(a) - (1-a) log2(A-1)), for one answer each and a uniform prior
    bits_beyond_last_token: float | None  # against the best guess by the last of several tokens
    recall: Mapping[int, float | None] = field(default_factory=dict)  # by k; None where there are no more answers

    def as_record(self) -> dict[str, float | None]:
        """By the names of METRICS."""
        plain = {name: value for name, value in asdict(self).items() if name != "recall"}
        return {**plain, **{recall_name(k): value for k, value in self.recall.items()}}


def evaluate(module: nn.Module, facts: Facts, parameters: int) -> Metrics:
    """Ask the model every fact once. Raises InvalidOutput."""
    hits, losses, *recalls = _answers(module, facts)
    prior = torch.from_numpy(facts.prior)
    total = float(prior @ torch.ones_like(hits))  # divided by, so that all right is exactly 1
    accuracy = float(prior @ hits) / total
    entropy = float(facts.prior @ facts.entropies())
    bits = float((math.log2(facts.answers) - losses / math.log(2)).sum())
    return Metrics(
        accuracy=accuracy,
        kl=float(prior @ losses) - entropy,
        associations=associations_of(accuracy, facts),
        bits=bits,
        bits_per_parameter=bits / parameters if parameters else None,
        bits_of_accuracy=len(facts) * rate(accuracy, facts.answers) if has_uniform_labels(facts) else None,
        bits_beyond_last_token=_beyond_last_token(facts, losses),
        recall={k: float(prior @ found) / total if k < facts.answers else None
                for k, found in zip(RECALLS, recalls, strict=True)},
    )  # fmt: skip


def _beyond_last_token(facts: Facts, losses: torch.Tensor) -> float | None:
    """None where the last token is all there is."""
    if facts.shape.length == 1:
        return None
    return float((last_token_losses(facts) - losses.numpy()).sum()) / math.log(2)


def last_token_losses(facts: Facts) -> NDArray[np.float64]:
    """Cross-entropy in nats of the best distribution of answers for each last token, float64[T]."""
    last = facts.inputs[:, -1]
    joint = np.zeros((facts.vocab, facts.answers))
    if facts.is_association:
        np.add.at(joint, (last, facts.targets), facts.prior)
    else:
        np.add.at(joint, last, facts.prior[:, None] * facts.targets)
    with np.errstate(divide="ignore", invalid="ignore"):
        surprise = -np.log(joint / joint.sum(axis=1, keepdims=True))
    if facts.is_association:
        return np.asarray(surprise[last, facts.targets])
    return np.asarray(np.where(facts.targets > 0, facts.targets * surprise[last], 0.0).sum(axis=1))


def _answers(module: nn.Module, facts: Facts) -> torch.Tensor:
    """For each context, the probability that the answer is right, the cross-entropy, and the probability that the right
    answer is among the first k: float64[2 + k's, T] on the CPU.
    """
    device = next((t.device for t in [*module.parameters(), *module.buffers()]), torch.device("cpu"))
    inputs, targets = torch.from_numpy(facts.inputs), torch.from_numpy(facts.targets)
    rows = max(1, CHUNK // facts.answers)
    scores: list[torch.Tensor] = []
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():  # not inference mode, where a module cannot take gradients of its own
            for tokens, target in zip(inputs.split(rows), targets.split(rows), strict=True):
                logits = check_logits(module(tokens.to(device)), len(tokens), facts.answers)
                plain = logits.cpu().double()
                scores.append(torch.stack([*_score(plain, target), *_recalls(plain, target)], dim=1))
    finally:
        module.train(was_training)
    return torch.cat(scores).T.contiguous()  # rows, whose products with the prior do not depend on what is beside them


def _score(logits: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    best = logits == logits.amax(dim=1, keepdim=True)  # [rows, A]; several are true when there is a tie
    log_probability = torch.log_softmax(logits, dim=1)
    if target.dtype == torch.int64:
        hit = best.gather(1, target[:, None])[:, 0] & (best.sum(dim=1) == 1)
        return hit.double(), -log_probability.gather(1, target[:, None])[:, 0]
    worst = torch.where(best, target, math.inf).amin(dim=1)  # among tied answers, the least likely one counts
    return worst, -torch.where(target > 0, target * log_probability, 0.0).sum(dim=1)


def _recalls(logits: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
    """For each k, the probability that the right answer is among the first k; among tied ones, it comes last."""
    if target.dtype == torch.int64:
        ahead = (logits >= logits.gather(1, target[:, None])).sum(dim=1)  # itself included
        return [(ahead <= k).double() for k in RECALLS]
    by_target = target.argsort(dim=1)  # the least likely first, so that a stable sort leaves it first among tied ones
    order = by_target.gather(1, logits.gather(1, by_target).argsort(dim=1, descending=True, stable=True))
    mass = target.gather(1, order).cumsum(dim=1)
    return [mass[:, min(k, mass.shape[1]) - 1] for k in RECALLS]


def check_logits(output: object, rows: int, answers: int) -> torch.Tensor:
    """The logits [rows, answers], if that is what a model returned; InvalidOutput otherwise."""
    logits = logits_of(output)
    if logits.shape != (rows, answers):
        advice = "" if logits.dim() != 2 or len(logits) != rows else _advice(logits.shape[1], answers)
        raise InvalidOutput(f"the model returned logits of shape {list(logits.shape)}, not [{rows}, {answers}]{advice}")
    if not torch.isfinite(logits).all():
        raise InvalidOutput("the model returned NaN or infinite logits")
    return logits


def logits_of(output: object) -> torch.Tensor:
    """What a model returned, as logits; of those at every position, [batch, length, A], the ones at the last."""
    if not isinstance(output, torch.Tensor):
        raise InvalidOutput(f"the model returned a {type(output).__name__}, not a tensor of logits")
    if not output.is_floating_point():
        raise InvalidOutput(f"the model returned {output.dtype}, not floating-point logits")
    return output[:, -1] if output.dim() == 3 else output


def _advice(given: int, answers: int) -> str:
    return f": it has {given} answers and the task {answers}; build its output with shape.answers"
