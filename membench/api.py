"""All that declares a plugin: `from membench.api import Architecture, Shape, hookimpl, option`.

Importing it never imports torch; `build` and the other callables import torch inside.
"""

from membench.errors import BudgetTooSmall, NotApplicable
from membench.interface.bound import Bound, Setting, Vacuous
from membench.interface.declarations import Architecture, Names, Task, lazy
from membench.interface.facts import Facts, Shape
from membench.interface.hookspecs import hookimpl
from membench.interface.options import option
from membench.interface.tracker import Event, Listener, Tracker

__all__ = [
    "Architecture",
    "Bound",
    "BudgetTooSmall",
    "Event",
    "Facts",
    "Listener",
    "Names",
    "NotApplicable",
    "Setting",
    "Shape",
    "Task",
    "Tracker",
    "Vacuous",
    "hookimpl",
    "lazy",
    "option",
]
