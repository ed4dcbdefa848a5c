"""The numbers of parameters at which architectures are compared."""

from __future__ import annotations

BUDGETS = (3_000, 10_000, 30_000)
# Half a decade for each budget: a model is credited from its own size on, up to the next larger one that is better.
AREA_FROM, AREA_TO = 3_000, 100_000
