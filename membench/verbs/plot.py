"""What `membench plot` does: curves of the records, drawn and written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from membench.errors import UsageError
from membench.verbs.load import load

if TYPE_CHECKING:
    from membench.analysis.figures import Plot

SUFFIXES = (".png", ".svg", ".pdf")


def plot(folders: Sequence[Path], out: Path, x: str, y: str, **more: Any) -> tuple[Plot, list[Path]]:
    """Draw a column of the records below some folders against another; the words are those of `Results.plot`.

    Gives what was drawn, and the files: one picture, or a PNG and an SVG for a name without an ending, and a CSV.
    """
    if out.suffix and out.suffix not in SUFFIXES:
        raise UsageError(f"cannot draw to '{out}': its name must end in {', '.join(SUFFIXES)}, or have no suffix")
    drawn = load(*folders).curves(x, y, **more)
    stem, suffixes = (out.with_suffix(""), [out.suffix]) if out.suffix else (out, SUFFIXES[:2])
    return drawn, list(drawn.write(stem, suffixes))
