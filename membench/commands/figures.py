"""What `plot` and `reproduce` share: curves from records, and figures with their data beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from membench.errors import UsageError
from membench.records.files import write_atomically

if TYPE_CHECKING:
    from membench.analysis.curves import Curve, Picture


def write_figure(drawn: Sequence[Curve], picture: Picture, stem: Path, suffixes: Sequence[str]) -> list[Path]:
    """The figure in each format, and its data as CSV, all under one name."""
    from membench.analysis.curves import as_csv, draw_curves

    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write figures to '{stem.parent}': {error.strerror}") from None
    paths = []
    for suffix in suffixes:
        paths.append(stem.with_name(stem.name + suffix))
        draw_curves(drawn, picture, paths[-1])
    data = stem.with_name(stem.name + ".csv")
    write_atomically(data, as_csv(drawn))
    return [*paths, data]
