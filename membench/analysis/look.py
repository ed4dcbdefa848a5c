"""The look that all our figures share: readable in print, by colour-blind people, and at half size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from membench.errors import UsageError

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart, and a marker each.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FORMATS = (".png", ".svg", ".pdf")


@contextmanager
def figure_at(path: Path) -> Iterator[Any]:
    """Axes in our look; what is drawn on them is written to the path, with a legend beside it."""
    if path.suffix not in FORMATS:
        raise UsageError(f"cannot draw to '{path}': a file that ends in {', '.join(FORMATS)} is needed")
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    look: dict[Any, Any] = {
        "font.size": 11,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "membench",
    }
    with plt.rc_context(look):
        figure, axes = plt.subplots(figsize=(7.2, 5.2), layout="constrained")
        try:
            yield axes
            columns = _legend_columns(axes.get_legend_handles_labels()[1])
            figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=10)
            figure.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            raise UsageError(f"cannot write '{path}': {error.strerror}") from None
        finally:
            plt.close(figure)


def _legend_columns(labels: Sequence[str]) -> int:
    """As many as are wanted for so many labels, and as have room side by side: about 96 letters and their samples."""
    longest = max(map(len, labels), default=0)
    return max(1, min(2 if len(labels) <= 6 else 4, 96 // (longest + 8)))
