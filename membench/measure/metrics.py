"""The metrics of a record: what each is, which way is better, what it can be, and who may rely on it.

How each is computed stands in `evaluate`; how far a verifier's may be off, in `membench.verify` (`allowances`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A number that says how well facts are known."""

    name: str
    label: str  # for the axis of a figure
    sign: int = 1  # 1: more is better, -1: less is better
    smallest_loss: float | None = None  # that a regression gate counts by default; None: it cannot be gated
    rebuilt: bool = True  # whether it follows from the weights and facts alone, so that verification measures it again
    floor: float | None = None  # no value is smaller; that of a divergence leaves room for rounding
    ceiling: float | None = None  # no value is larger, but for rounding
    of_least_loss: bool = False  # where two sets of weights were found, it is of the one of least cross-entropy
    later: bool = False  # records that were made before it existed do not have it


RECALLS = (2, 5, 10)  # k of recall@k; recall@1 is the accuracy


def recall_name(k: int) -> str:
    return f"recall@{k}"


METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy over all facts", smallest_loss=0.01, floor=0.0, ceiling=1.0),
        Metric("kl", "divergence from the facts (nats)", -1, smallest_loss=0.01, floor=-1e-6, of_least_loss=True),
        Metric("excess_kl", "divergence beyond the best known for this rank (nats)", -1, rebuilt=False),
        Metric("associations", "memorised associations"),
        Metric("bits", "memorised bits", of_least_loss=True),
        Metric("bits_per_parameter", "memorised bits per parameter", smallest_loss=0.02, of_least_loss=True),
        Metric("bits_of_accuracy", "bits that the accuracy takes", later=True),
        Metric("bits_beyond_last_token", "bits beyond what the last token says", of_least_loss=True, later=True),
        *(
            Metric(recall_name(k), f"right among the first {k} answers", floor=0.0, ceiling=1.0, later=True)
            for k in RECALLS
        ),
        Metric(
            "stream_accuracy",
            "accuracy over the last 100 batches",
            smallest_loss=0.01,
            rebuilt=False,
            floor=0.0,
            ceiling=1.0,
        ),
    )
}
GATED = {name: metric.smallest_loss for name, metric in METRICS.items() if metric.smallest_loss is not None}
LEAST_LOSS = tuple(name for name, metric in METRICS.items() if metric.of_least_loss)
REBUILT = tuple(name for name, metric in METRICS.items() if metric.rebuilt)
