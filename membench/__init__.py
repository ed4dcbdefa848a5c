"""membench measures how much a neural architecture can memorise, and compares it with what theory guarantees.

    results = membench.run("aot", "bigram", M={"H": [1, 6, 11]}, T={"N": 20}, seeds=3)

Every name below is imported when it is first used, so that `import membench` costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # to import it would be half of the time in which Ctrl-C is still a traceback
if TYPE_CHECKING:
    from typing import Any

    from membench.errors import MembenchError, PluginError, UsageError
    from membench.results import Results
    from membench.verbs.bounds import bounds
    from membench.verbs.capacity import capacity
    from membench.verbs.check import check
    from membench.verbs.compare import compare
    from membench.verbs.floor import floor
    from membench.verbs.load import load
    from membench.verbs.reproduce import reproduce
    from membench.verbs.run import run
    from membench.verbs.tune import tune

__version__ = "0.1.0"
__all__ = [
    "MembenchError",
    "PluginError",
    "Results",
    "UsageError",
    "__version__",
    "bounds",
    "capacity",
    "check",
    "compare",
    "floor",
    "load",
    "reproduce",
    "run",
    "tune",
]

_HOMES = {
    "MembenchError": "membench.errors",
    "PluginError": "membench.errors",
    "Results": "membench.results",
    "UsageError": "membench.errors",
}


if not TYPE_CHECKING:  # which would take any name at all for one that is there

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'membench' has no attribute '{name}'")
        from importlib import import_module

        value = getattr(import_module(_HOMES.get(name, f"membench.verbs.{name}")), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
