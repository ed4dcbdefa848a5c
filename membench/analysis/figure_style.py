"""The look that all our figures share: readable in print, by colour-blind people, and at half size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

from membench.errors import UsageError
from membench.records.files import write_named

# Okabe and Ito's colours, which people with any kind of colour vision can tell apart, and a marker each.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
FORMATS = (".png", ".svg", ".pdf")
LOOK: dict[Any, Any] = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "membench",
}
SIZE = (7.2, 5.2)


def check_figure_path(path: Path | None) -> None:
    """UsageError for a path that no figure can be written to: before hours of training rather than after."""
    _check_format(path)
    if path is not None and not path.absolute().parent.is_dir():
        raise UsageError(f"cannot draw to '{path}': '{path.parent}' is not a folder")


def _check_format(path: Path | None) -> None:
    if path is not None and path.suffix not in FORMATS:
        raise UsageError(f"cannot draw to '{path}': its name must end in {', '.join(FORMATS)}")


@contextmanager
def figure_at(path: Path | None) -> Iterator[Any]:
    """Axes in our look, with a legend below; what is drawn on them is written to the path.

    Without a path nothing is written, and `axes.figure` is for whoever asked, to be shown by a notebook or a window.
    """
    _check_format(path)
    import matplotlib

    with matplotlib.rc_context(LOOK):
        figure = _figure_to_show() if path is None else _figure_to_write()
        axes = figure.subplots()
        yield axes
        columns = _legend_columns(axes.get_legend_handles_labels()[1])
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=10)
        if path is not None:
            _write(figure, path)


def _figure_to_write() -> Any:
    """Without pyplot: writing a file neither opens a window nor changes how a notebook draws."""
    from matplotlib.figure import Figure

    return Figure(figsize=SIZE, layout="constrained")


def _figure_to_show() -> Any:
    import matplotlib
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=SIZE, layout="constrained")
    if "inline" in matplotlib.get_backend():
        plt.close(figure)  # a notebook shows the value of a cell; what pyplot holds would be shown once more
    return figure


def _write(figure: Any, path: Path) -> None:
    drawn = BytesIO()
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(drawn, format=path.suffix[1:], dpi=160, metadata=metadata)
    write_named(path, drawn.getvalue())


def _legend_columns(labels: Sequence[str]) -> int:
    """As many as are wanted for so many labels, and as have room side by side: about 96 letters and their samples."""
    longest = max(map(len, labels), default=0)
    return max(1, min(2 if len(labels) <= 6 else 4, 96 // (longest + 8)))
