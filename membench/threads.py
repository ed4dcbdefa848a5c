"""Imported before numpy: one thread for its linear algebra, unless the user says otherwise.

Our matrices are small. On the floor of a 10-token task, two OpenBLAS threads took ten times the
CPU time of one; parallel work is done by processes.
"""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
