"""The allocator of a worker process."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

# Of glibc's mallopt.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3
LARGEST = 32 << 20  # for a threshold of mmap, by glibc's own rule


def keep_freed_memory() -> None:
    """Let freed memory stay with this process, where the C library has a switch for it.

    A training takes and frees the same few tensors thousands of times. By default those above 128 kB go back to the
    system each time, and to get them again costs a tenth to a half as much as the arithmetic on them.
    """
    if sys.platform != "linux":
        return
    with suppress(AttributeError, OSError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_THRESHOLD, LARGEST)
        mallopt(TRIM_THRESHOLD, 1 << 30)
        mallopt(TOP_PAD, 64 << 20)
