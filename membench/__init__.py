"""membench measures how much a neural architecture can memorise, against what theory says it can."""

__version__ = "0.1.0"
