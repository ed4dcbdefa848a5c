"""Imported before numpy: one thread for its linear algebra by default.

Our matrices are small. On the floor of a 10-token task, two OpenBLAS threads took ten times the
CPU time of one; parallel work is done by processes.
"""

from __future__ import annotations

import os

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def limit_threads() -> None:
    """For a program that is membench alone; a program that uses membench has its own."""
    for variable, count in ONE_THREAD.items():
        os.environ.setdefault(variable, count)
