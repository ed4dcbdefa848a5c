"""All that a plugin with a C++ kernel needs beside membench.api: what compiles it, and the Python side of a trainer.

It imports torch, so that only a plugin's kernel module imports it. The other side is kernel.hpp, which every kernel may
include; docs/plugins.md tells how the two fit together.
"""

from membench.engine.compiler import library
from membench.engine.fused import FusedTrainer, Layout, Section, require_plain
from membench.engine.trainer import Batches, Kernel, Progress, Trainer

__all__ = [
    "Batches",
    "FusedTrainer",
    "Kernel",
    "Layout",
    "Progress",
    "Section",
    "Trainer",
    "library",
    "require_plain",
]
