"""Randomness that repeats: what is drawn inside follows from a seed, and nothing outside notices."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def drawn_from(*seed: int) -> Iterator[None]:
    """Generators of torch, numpy and Python start from a seed, and are afterwards as they were before."""
    kept, kept_by_numpy = random.getstate(), np.random.get_state()
    number = seed[0] if len(seed) == 1 else int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1)
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_initialized() else []):
        torch.manual_seed(number)
        random.seed(number)
        np.random.seed(number % 2**32)
        try:
            yield
        finally:
            random.setstate(kept)
            np.random.set_state(kept_by_numpy)
