"""Review the submissions of a pull request: `python -m membench_leaderboard.review --base main` writes the comment.

Each changed folder of leaderboard/submissions is checked as a folder, verified from its weights, and one of its points,
drawn by a salt, is trained again. The comment says what came out, and shows the tables as they would be. Whatever a
submission says may be hostile: it is escaped, and none of its code runs in this process.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import click
import pandas as pd

from membench.analysis.escape_markdown import escape
from membench.errors import NOT_ALL_VERIFIED, MembenchError, UsageError
from membench.interface.registry import Selection
from membench.printing import printable
from membench.records.files import write_named
from membench.records.store import Entry
from membench.temporary import temporary_folder
from membench.verbs.verify import Verification, verify
from membench.verify.folder import brought_plugins, check_folder
from membench.verify.retrain import SUBMITTED, Repeat
from membench.verify.verdict import FAILED, TIMEOUT, UNCHECKED, VERIFIED
from membench_leaderboard.first_places import read_history, taken
from membench_leaderboard.frame import to_frame
from membench_leaderboard.gather import merged, read_entries
from membench_leaderboard.markdown import scores_as_markdown
from membench_leaderboard.publish import publishable, refuse_worse
from membench_leaderboard.published import published_entries
from membench_leaderboard.rows import summarise
from membench_leaderboard.track_scores import asked_with
from membench_leaderboard.words import counted

SUBMISSIONS = "leaderboard/submissions"
LISTED = 10  # reasons that a comment gives, of each kind
MARKS = {VERIFIED: "✅", FAILED: "❌", UNCHECKED: "⚠️"}
ORDER = (FAILED, UNCHECKED, VERIFIED)  # the worst is that of the whole


@dataclass(frozen=True)
class Review:
    """What became of one submission, and the Markdown that says so."""

    name: str
    outcome: str
    text: str


@click.command()
@click.option("--base", required=True, metavar="COMMIT", help="What the pull request is to be merged into.")
@click.option("--tree", type=click.Path(path_type=Path), default=Path(), metavar="FOLDER",
              help="Checkout of the pull request; by default the current folder.")  # fmt: skip
@click.option("--comment", type=click.Path(path_type=Path), metavar="FILE", help="Where to write the comment.")
@click.option("--salt", metavar="TEXT", help="Salt that draws what is trained again (random by default).")
@click.option("--timeout", type=click.FloatRange(min=1), default=TIMEOUT, show_default=True, metavar="SECONDS",
              help="Time limit per record.")  # fmt: skip
def main(base: str, tree: Path, comment: Path | None, salt: str | None, timeout: float) -> None:
    """Review every submission that a pull request changes, and write the comment as Markdown.

    Exit code 0 if all is verified, 1 if something failed, 4 if not everything could be checked.
    """
    names, others, gone = changed(tree, base)
    salt = secrets.token_hex(8) if salt is None else salt
    reviews = [review(tree, name, salt, timeout) for name in names]
    text = comment_text(reviews, others, gone)
    if comment is None:
        click.echo(text)
    else:
        write_named(comment, text)
    sys.exit(exit_code([one.outcome for one in reviews]))


def exit_code(outcomes: Sequence[str]) -> int:
    return 1 if FAILED in outcomes else NOT_ALL_VERIFIED if UNCHECKED in outcomes else 0


def changed(tree: Path, base: str) -> tuple[list[str], list[str], list[str]]:
    """Names of submissions that are new or changed, other files that are, and submissions that are gone."""
    # the words come from a workflow, and what begins with '-' would be an option of git
    words = ["git", "-C", str(tree), "diff", "--name-only", "--no-renames", "-z", "--end-of-options", f"{base}...HEAD"]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        raise UsageError(f"git cannot compare with '{base}': {done.stderr.decode(errors='replace').strip()[:200]}")
    paths = [path for path in done.stdout.decode(errors="surrogateescape").split("\0") if path]
    inside = [path.removeprefix(f"{SUBMISSIONS}/").split("/") for path in paths if path.startswith(f"{SUBMISSIONS}/")]
    others = [path for path in paths if not path.startswith(f"{SUBMISSIONS}/")]
    others += [f"{SUBMISSIONS}/{parts[0]}" for parts in inside if parts == ["README.md"]]
    names = sorted({parts[0] for parts in inside if parts != ["README.md"]})
    there = [name for name in names if (tree / SUBMISSIONS / name).is_symlink() or (tree / SUBMISSIONS / name).exists()]
    return there, others, sorted(set(names) - set(there))


def review(tree: Path, name: str, salt: str, timeout: float) -> Review:
    """One submission, from its files to its places on the board."""
    folder = tree / SUBMISSIONS / name
    if folder.resolve() != tree.resolve() / SUBMISSIONS / name:
        return _refused(name, f"{SUBMISSIONS}/{name} leads out of the checkout")
    if problem := check_folder(folder):
        return _refused(name, problem)
    with temporary_folder() as temporary:
        copy = temporary / name  # verification writes marks, and a checkout stays as it is
        shutil.copytree(folder, copy, symlinks=True)
        try:
            plugins = brought_plugins(copy)
            selection = Selection.from_environment(plugins)
            done = verify(copy, selection, retrain=True, points=1, salt=salt, timeout=timeout, show=False)
            entries, _ = read_entries([copy])
        except (MembenchError, ValueError) as error:
            return _refused(name, str(error))
        marked = [one for one in entries if one.verified]
        return _reviewed(name, done, marked, [Path(one).relative_to(copy).as_posix() for one in plugins])


def _refused(name: str, reason: str) -> Review:
    return Review(name, FAILED, f"{MARKS[FAILED]} Not looked at further: {escape(reason)}.")


def _reviewed(name: str, done: Verification, marked: Sequence[Entry], plugins: Sequence[str]) -> Review:
    chosen, _ = publishable(marked)
    never = len(marked) - len(chosen)
    problem, few = _worse(chosen), _with_few_seeds(chosen)
    trained = {one.outcome for one in done.repeats}
    wrong = {FAILED} if problem or (never and not chosen) else set()
    found = {*done.outcomes, *wrong, *(trained or {UNCHECKED}), *({UNCHECKED} if few else ())}
    outcome = next(one for one in ORDER if one in found)
    parts = [
        _counts(done),
        *_reasons(done),
        *(_repeat(one, done.salt) for one in done.repeats),
        *(["Nothing of it could be trained again."] if not done.repeats else []),
        *([f"{MARKS[UNCHECKED]} {counted(few, 'point')} with fewer than {SUBMITTED} seeds, too few to be trained "
           "again: nothing says how these weights were found."] if few else []),
        *([f"{MARKS[FAILED]} {escape(problem)}."] if problem else []),
        *([f"{counted(never, 'record')} of a protocol that is never ranked, such as `quick`: they stay off the board."]
          if never else []),
        *([_plugins(plugins)] if plugins else []),
        *([_tables(chosen)] if chosen and outcome != FAILED else []),
    ]  # fmt: skip
    return Review(name, outcome, "\n\n".join(parts))


def _worse(chosen: Sequence[Entry]) -> str:
    try:
        refuse_worse(chosen, published_entries())
    except UsageError as error:
        return str(error)
    return ""


def _with_few_seeds(chosen: Sequence[Entry]) -> int:
    """Points that the salt cannot draw, whatever is in them."""
    seeds = Counter(one.record.id for one in chosen)
    return sum(number < SUBMITTED for number in seeds.values())


def _counts(done: Verification) -> str:
    counts = Counter(one.outcome for one in done.verdicts)
    return "Rebuilt from weights: " + ", ".join(
        f"{MARKS[outcome]} {counts[outcome]} {outcome}" for outcome in ORDER[::-1] if counts[outcome]
    )


def _reasons(done: Verification) -> Iterator[str]:
    for outcome in (FAILED, UNCHECKED):
        some = [one for one in done.verdicts if one.outcome == outcome]
        if some:
            lines = [f"- `{_file(one.path)}`: {escape(one.reason)}" for one in some[:LISTED]]
            more = [f"- and {len(some) - LISTED:,} more"] if len(some) > LISTED else []
            yield "\n".join([f"{MARKS[outcome]} {outcome}:", "", *lines, *more])


def _file(path: Path) -> str:
    """Of a submission whose names were checked, so that it cannot end the code that it stands in."""
    return "/".join(path.parts[-3:])


def _repeat(one: Repeat, salt: str) -> str:
    means = one.means()
    record = one.records[0]
    told = [
        f"{MARKS[one.outcome]} One point, drawn by the salt `{salt}`, was trained again: "
        f"{escape(record.architecture['name'])} ({escape(record.architecture.get('label') or '')}) on "
        f"{escape(record.task['name'])} ({escape(record.task.get('label') or '')})."
    ]
    if means["found"]:
        told.append(
            f"Accuracy {means['found']['accuracy']:.4f} over {len(one.seeds)} new seeds, "
            f"{means['submitted']['accuracy']:.4f} as submitted over {len(one.records)}."
        )
    if one.held_out and one.held_out.metrics and (accuracy := one.held_out.metrics.get("accuracy")) is not None:
        config = " ".join(f"{key}={value}" for key, value in one.held_out.as_json()["task_config"].items())
        told.append(f"With the held-out config {escape(config)}: {accuracy:.4f}.")
    told += [f"**{one.outcome}**: {escape(one.reason)}."] if one.reason else []
    return " ".join([*told, *(f"Note: {escape(note)}." for note in one.notes)])


def _plugins(plugins: Sequence[str]) -> str:
    return f"It brings code of its own, which somebody should read: {', '.join(f'`{one}`' for one in plugins)}."


def _tables(chosen: Sequence[Entry]) -> str:
    """Tracks and tables that would have something new, as they would be; a track with all its tasks, which rank it."""
    after = summarise(to_frame([replace(one, published=True) for one in merged(published_entries(), chosen)]))
    new = {one.record.id for one in chosen}
    names = ", ".join(
        f"**{escape(name)}**" for name in sorted({str(one.record.architecture["name"]) for one in chosen})
    )
    told = f"The board as it would be, with {counted(len(new), 'new row')} of {names}:"
    return "\n\n".join([told, scores_as_markdown(asked_with(after, new), sizes=new), *_first_places(after)])


def _first_places(after: pd.DataFrame) -> Iterator[str]:
    history = read_history()
    for one in taken(history, after, datetime.now(UTC).date().isoformat()):
        over = "" if one.over is None else f" from {escape(one.over)} by {one.by:.3f} (p = {one.p:.2g})"
        place = f"{escape(one.track)}, {escape(one.task)}"
        yield f"🏁 **{escape(one.architecture)}** would take the first place of {place}{over}."


def comment_text(reviews: Sequence[Review], others: Sequence[str], gone: Sequence[str]) -> str:
    """The whole comment."""
    parts = ["## Submissions"]
    if not reviews:
        parts.append(f"No submission is new or changed: there is nothing below `{SUBMISSIONS}`.")
    for one in reviews:
        parts += [f"### {MARKS[one.outcome]} {escape(one.name)}: {one.outcome}", one.text]
    if gone:
        parts.append(f"Removed: {', '.join(map(escape, gone))}.")
    if others:
        shown = ", ".join(map(escape, others[:LISTED])) + (", .." if len(others) > LISTED else "")
        parts.append(f"⚠️ Also changes {counted(len(others), 'other file')}, which nobody verified: {shown}.")
    return "\n\n".join([*parts, _how()]) + "\n"


def _how() -> str:
    network = "without a network" if offline() else "**with** a network, because this platform does not take it away"
    return (
        f"<sub>Verified {network}, by the code of the branch that this is to be merged into. Weights say what a model "
        "knows; the point that was trained again says whether others get there.</sub>"
    )


def offline() -> bool:
    """Whether this process has no network but the machine itself."""
    return {name for _, name in socket.if_nameindex()} <= {"lo"}


if __name__ == "__main__":
    try:
        main.main(standalone_mode=False)
    except MembenchError as error:
        click.echo(f"membench: {printable(error)}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
