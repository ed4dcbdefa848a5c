"""Publish records: `python -m membench_leaderboard.publish results/` writes the packs and docs/board.md.

For maintainers, in a checkout: what is written there comes with the next release of the package.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from membench.errors import MembenchError, UsageError
from membench.interface.registry import NAME, Selection
from membench.printing import printable
from membench.records.files import write_atomically
from membench.records.store import Entry
from membench.verbs.verify import verify
from membench.verify.retrain import consistent
from membench.verify.verdict import FAILED, TIMEOUT
from membench_leaderboard.confirm import refuse_unconfirmed
from membench_leaderboard.first_places import read_history, taken, write_history
from membench_leaderboard.frame import to_frame
from membench_leaderboard.gather import merged, read_entries
from membench_leaderboard.markdown import leaderboard_document
from membench_leaderboard.published import BOARD, HERE, PAPER, published_entries
from membench_leaderboard.published.compact import compact
from membench_leaderboard.rows import is_ranked, summarise

CHECKOUT = Path(__file__).parents[2]


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(readable=False, path_type=Path))
@click.option("--source", type=click.Choice([BOARD, PAPER]), default=BOARD, show_default=True,
              help="The published board, or the store for reproductions of papers.")  # fmt: skip
@click.option("--fresh", is_flag=True, help="Leave out what was published before.")
@click.option("--replace", "replacing", is_flag=True,
              help="Also publish what is worse than the published records of its point.")  # fmt: skip
@click.option("--plugin", "plugins", multiple=True, type=click.Path(readable=False),
              help="Plugin file that the records need.")  # fmt: skip
def main(folders: tuple[Path, ...], source: str, fresh: bool, replacing: bool, plugins: tuple[str, ...]) -> None:
    """Verify the finished trials below FOLDERS, add them to what is published, and write docs/board.md again.

    Nothing is published of a folder with a record that fails. The board takes verified records alone, and those of
    plugins if training them again confirmed them, which is done here; reproductions of papers may be self-reported. A
    trial that was published before is replaced. Records that would make a published point worse, or less sure, are
    refused, and so is a first place if one of its points, trained again, does worse. Without FOLDERS, only the files
    are written again.
    """
    if not (CHECKOUT / "pyproject.toml").is_file():
        raise UsageError(f"'{CHECKOUT}' is not a checkout of membench; records are published from one")
    for folder in folders:
        if folder.is_dir():
            _verify(folder, plugins)
    found, problems = read_entries(folders)
    for problem in problems:
        click.echo(f"membench: {problem}", err=True)
    chosen, left_out = publishable(found)
    if source == BOARD:
        refuse_doubtful(chosen)
    if not fresh and not replacing:
        refuse_worse(chosen, published_entries(source))
    if source == BOARD:
        confirm_first_places([] if fresh else published_entries(), chosen)
    for path in publish(chosen, source, HERE, fresh=fresh):
        click.echo(f"wrote {path.relative_to(CHECKOUT)} ({path.stat().st_size:,} bytes)")
    write_atomically(CHECKOUT / "docs" / "board.md", leaderboard_document(published_entries()))
    if source == BOARD:
        _take_first_places()
    click.echo(f"{len(chosen)} records published, {left_out} left out (failed, or not to be ranked); docs/board.md")


def confirm_first_places(before: Iterable[Entry], new: Iterable[Entry]) -> None:
    """UsageError if the new records take one that training again does not confirm."""
    entries = merged(before, new)
    rows = summarise(to_frame([replace(one, published=True) for one in entries]))
    refuse_unconfirmed(taken(read_history(HERE), rows, _today()), rows, entries)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _take_first_places() -> None:
    """Write down who takes a first place with what is published now."""
    before = read_history(HERE)
    new = list(taken(before, summarise(to_frame(published_entries())), _today()))
    for one in new:
        over = "" if one.over is None else f", from {one.over} by {one.by:.3f} (p = {one.p:.2g})"
        click.echo(f"{one.architecture} takes the first place of {one.track}, {one.task}{over}")
    if new:
        write_history([*before, *new], HERE)


def _verify(folder: Path, plugins: Sequence[str]) -> None:
    """Marks are made here, by whoever publishes. UsageError for a folder with a record that is not true."""
    selection = Selection.from_environment(plugins)
    verification = verify(folder, selection, retrain_plugins=True, timeout=TIMEOUT, show=False)
    verdicts = verification.verdicts
    failed = [one for one in verdicts if one.outcome == FAILED]
    if failed:
        raise UsageError(
            f"{len(failed)} of {len(verdicts)} records in '{folder}' failed verification; "
            f"'{failed[0].path}': {failed[0].reason}"
        )


def refuse_doubtful(new: Iterable[Entry]) -> None:
    """UsageError for a record that could be first with a worthless model: nobody saw its weights, or its code draws
    the facts again.
    """
    for one in new:
        if not one.verified:
            raise UsageError(
                f"'{one.source}' was not verified, and the board shows what was: 'membench verify' says why, and "
                f"--source {PAPER} publishes what is self-reported"
            )
        if one.retrained is False:
            raise UsageError(
                f"'{one.source}' is of a plugin's architecture, and training it again did not confirm it: "
                "'membench verify --retrain' says why"
            )


def publishable(found: Iterable[Entry]) -> tuple[list[Entry], int]:
    """Complete records of protocols that are ranked, and how many others there are."""
    found = list(found)
    chosen = [one for one in found if one.record.complete and is_ranked(str(one.record.protocol["name"]))]
    return chosen, len(found) - len(chosen)


def refuse_worse(new: Iterable[Entry], published: Iterable[Entry]) -> None:
    """UsageError for records that pull a published point down: weights that were hardly trained are true records too.

    A point is the mean over its seeds, whoever they come from. So somebody else's seeds must do as well as those that
    are there, as in training again, and must be verified where those are.
    """
    before, added = _by_point(published), _by_point(new)
    for point in before.keys() & added.keys():
        old, some = before[point], added[point]
        told = f"{len(some)} new records of a published point, such as '{some[0].source}',"
        how = "if the published ones are wrong, publish with --replace"
        if all(one.verified for one in old) and not all(one.verified for one in some):
            raise UsageError(f"{told} are not all verified, and the published ones are; {how}")
        outcome, reason = consistent([one.record.metrics for one in old], [one.record.metrics for one in some])
        if outcome == FAILED:
            raise UsageError(f"{told} are worse than the published ones: {reason}; {how}")


def _by_point(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    points: dict[str, list[Entry]] = {}
    for entry in entries:
        points.setdefault(entry.record.id, []).append(entry)
    return points


def publish(new: Iterable[Entry], source: str, root: Path, *, fresh: bool = False) -> list[Path]:
    """Write one pack for each task below root/source; of two records of one trial, the new one stays."""
    before = [] if fresh else published_entries(source, root)
    by_task: dict[str, list[Entry]] = {}
    for entry in merged(before, new):
        by_task.setdefault(_file_name(entry), []).append(entry)
    folder = root / source
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for task, some in sorted(by_task.items()):
        written.append(folder / task)
        write_atomically(written[-1], compact(some))
    for path in set(folder.glob("*.jsonl")) - set(written):
        path.unlink()
    return written


def _file_name(entry: Entry) -> str:
    task = str(entry.record.task["name"])
    if not NAME.fullmatch(task):
        raise UsageError(f"'{entry.source}' is about a task called {task!r}, which cannot be the name of a file")
    return f"{task}.jsonl"


if __name__ == "__main__":
    try:
        main.main(standalone_mode=False)
    except MembenchError as error:
        click.echo(f"membench: {printable(error)}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
