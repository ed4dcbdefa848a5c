"""What to watch of a point: metrics, each with the smallest loss that counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from membench.errors import UsageError, unknown
from membench.measure.metrics import GATED

Watch = Mapping[str, float]


def parse_watch(texts: Iterable[str]) -> Watch:
    """Texts such as `accuracy` or `accuracy=0.02`; without a number, the metric's own smallest loss."""
    found: dict[str, float] = {}
    for text in texts:
        name, equals, loss = text.partition("=")
        check_metric(name)
        found[name] = _loss(text, loss) if equals else GATED[name]
    return found


def check_metric(name: str) -> None:
    """UsageError for a metric that cannot be watched."""
    if name not in GATED:
        raise unknown("metric", name, GATED, f"there are: {', '.join(GATED)}")


def check_loss(loss: float, words: str) -> float:
    """UsageError, which starts with these words, unless it is a loss that can count."""
    if not 0 < loss < math.inf:
        raise UsageError(f"{words}: the smallest loss that counts is a number above 0")
    return loss


def _loss(text: str, loss: str) -> float:
    try:
        value = float(loss)
    except ValueError:
        value = math.nan
    return check_loss(value, f"--watch {text}")
