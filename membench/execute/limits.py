"""What a trial may take, enforced from outside: a model that never ends, or takes all memory, costs its own trial."""

from __future__ import annotations

import time
from dataclasses import dataclass

LOOK = 0.1  # seconds between two looks at the memory of the workers


@dataclass(frozen=True)
class Limits:
    """None: no limit."""

    timeout: float | None = None  # seconds for each trial
    memory: int | None = None  # bytes for a worker and its children

    @property
    def patience(self) -> float | None:
        """Seconds until the limits have to be looked at again; None: no need to."""
        if self.memory is not None:
            return LOOK
        return None if self.timeout is None else max(LOOK, min(1.0, self.timeout / 10))

    def exceeded(self, started: float | None, memory: int, trials: int = 1) -> str:
        """Why a process has to be stopped now; empty if it may go on.

        Seeds that are trained together share their time, as the seconds in a record do.
        """
        seconds = None if self.timeout is None else self.timeout * trials
        if seconds is not None and started is not None and time.monotonic() - started > seconds:
            each = f" for each of its {trials} trials" if trials > 1 else ""
            return f"stopped after {seconds:g} s: --timeout allows {self.timeout:g} s{each}"
        if self.memory is not None and memory > self.memory:
            return f"stopped when it held {memory:,} bytes of memory: --memory allows {self.memory:,}"
        return ""
