"""What `membench submit` does: records and their weights, gathered in a folder for a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from membench.verbs.arguments import say


@dataclass(frozen=True)
class Submission:
    """What is in the folder now."""

    folder: Path
    new: bool  # whether it was not there before
    records: int
    with_weights: int
    plugins: tuple[str, ...] = ()  # plugin files that it brings along, as --plugin takes them


def submit(folders: Sequence[Path], out: Path, *, without_weights: bool) -> Submission:
    """Copy the complete records below some folders, with their weights and a summary. What is left out is named."""
    from membench.verify.submission import gather, plugin_targets, summarise, write

    entries, problems = gather(list(folders) or [Path("results")], without_weights)
    for problem in problems:
        say(problem)
    new = write(entries, out, summarise(entries))
    plugins = tuple(f"{out}/{target}" for target in plugin_targets(entries))
    return Submission(out, new, len(entries), sum(entry.weights is not None for entry in entries), plugins)
