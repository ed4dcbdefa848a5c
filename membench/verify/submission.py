"""Submissions: records with their weights, gathered in one folder that can be sent as a pull request."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from membench import __version__
from membench.analysis.escape_markdown import escape
from membench.errors import UsageError, cannot_write
from membench.interface.origin import files_of, origin_of_file
from membench.interface.registry import NAME, NAME_WORDS, split_target
from membench.records import weights
from membench.records.files import make_parent, read_regular
from membench.records.record import Record, read_json
from membench.records.store import Entry, FromNewerMembench, Store, read, read_bytes
from membench.temporary import temporary_folder
from membench.verify.marks import MARKS
from membench.verify.signature import SUFFIX as SIGNATURE

MANIFEST, SUMMARY = "submission.json", "summary.md"
FORMAT = 1
MAX_MANIFEST = 64 << 20
_PART = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"
PLACE = re.compile(rf"{_PART}(/{_PART})*")  # of a file, below the folder
PLUGINS = "plugins"  # where plugin files go, which nobody else has
MAX_PLUGIN = 1 << 20
_PLUGIN_PLACE = re.compile(rf"{PLUGINS}/[0-9a-f]{{8}}/{_PART}(:[A-Za-z_][A-Za-z0-9_]*)?")


@dataclass(frozen=True)
class SubmittedRecord:
    """A record of a submission with its weights, as they were read."""

    entry: Entry
    content: bytes
    weights: bytes | None

    @property
    def record(self) -> Record:
        return self.entry.record

    @property
    def place(self) -> str:
        """Where it goes in the submission; a store made by `run` has it in the same place."""
        record = self.record
        return f"{record.task['name']}/{record.architecture['name']}/{record.id}-s{record.seed}.json"


def gather(folders: Sequence[Path], without_weights: bool) -> tuple[list[SubmittedRecord], list[str]]:
    """The complete records below the folders, one for each trial, and a sentence for each file left out."""
    entries: dict[tuple[str, int], SubmittedRecord] = {}
    problems: list[str] = []
    for path in _files(folders):
        found = _read(path, problems, without_weights)
        if found is None:
            continue
        twin = entries.setdefault(found.entry.key, found)
        if not _agree(twin.record, found.record):
            raise UsageError(
                f"'{twin.entry.source}' and '{path}' are records of the same trial (id {found.record.id}, seed "
                f"{found.record.seed}) with different numbers; submit one of them"
            )
    if not entries:
        raise UsageError(
            f"there are no complete records in {_listed(folders)}; make some with: "
            "membench run --model aot --task bigram --keep-weights"
        )
    return sorted(entries.values(), key=lambda entry: entry.place), problems


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        if not folder.exists():
            raise UsageError(f"'{folder}' does not exist; records are written by: membench run --keep-weights")
        if not folder.is_dir():
            raise UsageError(f"'{folder}' is a file; name the folder that the records are in")
        yield from Store(folder).files()


def _read(path: Path, problems: list[str], without_weights: bool) -> SubmittedRecord | None:
    try:
        entry = read(path)
        _check_names(entry.record)
    except FromNewerMembench as error:
        raise UsageError(f"'{path}' {error}") from None
    except ValueError as error:
        problems.append(f"left out '{path}': {error}")
        return None
    if not entry.record.complete:
        problems.append(f"left out '{path}': its trial did not succeed")
        return None
    return SubmittedRecord(entry, read_bytes(path), _weights(entry.record, path, without_weights))


def _check_names(record: Record) -> None:
    """ValueError for a name that could not be part of a path."""
    for text in (record.task["name"], record.architecture["name"], record.id):
        if not isinstance(text, str) or not NAME.fullmatch(text):
            raise ValueError(f"{text!r} is not a name")


def _weights(record: Record, path: Path, without_weights: bool) -> bytes | None:
    """The weights of a record; None only where it is fine to have none."""
    if without_weights and not record.weights:
        return None
    try:
        return weights.read(record.weights, path)
    except ValueError as error:
        raise UsageError(
            f"'{path}' cannot be verified: {error}; run the same command again with --keep-weights, "
            "or submit self-reported numbers with --without-weights"
        ) from None


def _agree(one: Record, other: Record) -> bool:
    return one.metrics == other.metrics and one.size == other.size


def _listed(folders: Sequence[Path]) -> str:
    return ", ".join(f"'{folder}'" for folder in folders)


def write(entries: Sequence[SubmittedRecord], out: Path, summary: str) -> bool:
    """Write the submission whole or not at all; False when the very same one is there already.

    UsageError for a folder that has anything else in it.
    """
    files = _contents(entries, summary)
    files[MANIFEST] = _manifest(files, entries, plugin_targets(entries))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if out.is_dir() and _holds(out) == files:
            return False
        raise UsageError(f"'{out}' already exists and is not this submission; choose another folder with --out")
    make_parent(out)
    try:
        with temporary_folder(out) as temporary:
            for name, content in files.items():
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                (temporary / name).write_bytes(content)
            os.chmod(temporary, 0o755)  # it was made private; a submission is to be shared
            os.replace(temporary, out)  # takes the place of an empty folder too
    except OSError as error:
        raise cannot_write(out, error) from None
    return True


def _contents(entries: Sequence[SubmittedRecord], summary: str) -> dict[str, bytes]:
    files = {SUMMARY: summary.encode()}
    for entry in entries:
        files[entry.place] = entry.content
        if entry.weights is not None:
            files[entry.place.removesuffix(".json") + weights.SUFFIX] = entry.weights
    for origin, part in _file_origins(entries).items():
        path = Path(split_target(origin)[0])
        for file in files_of(path):
            place = f"{PLUGINS}/{part['code_sha256'][:8]}/{file.relative_to(path.parent).as_posix()}"
            if not PLACE.fullmatch(place):
                raise UsageError(f"'{file}' cannot be part of a submission: {NAME_WORDS}")
            files[place] = read_regular(file, MAX_PLUGIN)
    return files


def plugin_targets(entries: Sequence[SubmittedRecord]) -> list[str]:
    """What --plugin has to be given, below the submission, to verify records of plugin files."""
    origins = _file_origins(entries)
    names = {origin: Path(split_target(origin)[0]).name + origin[len(split_target(origin)[0]) :] for origin in origins}
    return sorted({f"{PLUGINS}/{part['code_sha256'][:8]}/{names[origin]}" for origin, part in origins.items()})


def _file_origins(entries: Sequence[SubmittedRecord]) -> dict[str, dict[str, Any]]:
    """Plugin files that records were made with, each with what a record says of it.

    UsageError for one that is no longer as it was: nobody could verify its records.
    """
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        for part in (entry.record.architecture, entry.record.task):
            origin = part.get("distribution") or ""
            if origin in found or not split_target(origin)[0].endswith(".py"):
                continue
            path = Path(split_target(origin)[0])
            try:
                there = origin_of_file(path).code_sha256
            except OSError:
                there = None
            if there is None or there != part.get("code_sha256"):
                what = "is no longer there" if there is None else "has changed since"
                raise UsageError(
                    f"'{entry.entry.source}' was made with the plugin file '{path}', which {what}: without it nobody "
                    "could verify the record; put it back, or run the command again"
                )
            found[origin] = part
    return found


def _manifest(files: dict[str, bytes], entries: Sequence[SubmittedRecord], plugins: Sequence[str]) -> bytes:
    rows: list[dict[str, Any]] = [
        {"file": name, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        for name, content in sorted(files.items())
    ]
    brought = {"plugins": list(plugins)} if plugins else {}
    data = {"format": FORMAT, "membench": __version__, "records": len(entries), **brought, "files": rows}
    return (json.dumps(data, indent=1) + "\n").encode()


def check_manifest(folder: Path, records: Sequence[Path]) -> dict[Path, str]:
    """What of a folder is not as its submission.json says, by file; nothing where there is none.

    A submission is what its manifest lists: neither a file less, nor a record more.
    """
    path = folder / MANIFEST
    if not os.path.lexists(path):
        return {}
    try:
        listed = listed_files(read_regular(path, MAX_MANIFEST))
    except ValueError as error:
        return {path: f"it is not the manifest of a submission: {error}"}
    wrong = {}
    for name, digest in listed.items():
        file = folder / name
        try:
            if hashlib.sha256(read_regular(file, weights.MAX_BYTES)).hexdigest() != digest:
                wrong[file] = f"it is not the file that {MANIFEST} lists: its SHA-256 differs"
        except ValueError as error:
            wrong[file] = f"{MANIFEST} lists it, and {error}"
    known = {folder / name for name in listed}
    return {**wrong, **{file: f"{MANIFEST} does not list it" for file in records if file not in known}}


def listed_files(content: bytes) -> dict[str, str]:
    """Digests by name. ValueError for anything that is not a manifest, or leads out of its folder."""
    data = read_json(content.decode())
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("files"), list):
        raise ValueError(f"it has no files in the format {FORMAT}")
    listed = {}
    for row in data["files"]:
        name, digest = (row.get("file"), row.get("sha256")) if isinstance(row, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(digest, str) or not PLACE.fullmatch(name):
            raise ValueError(f"it lists {ascii(name)[:80]}, which is no file of a submission")
        listed[name] = digest
    return listed


def plugin_place(target: object) -> str:
    """A plugin file of a submission, with the class in it if it names one. ValueError for one that lies elsewhere."""
    if not isinstance(target, str) or not _PLUGIN_PLACE.fullmatch(target):
        raise ValueError(f"{MANIFEST} names the plugin {ascii(target)[:80]}, which is no file below {PLUGINS}/")
    return target


def _holds(folder: Path) -> dict[str, bytes]:
    """All files of a folder but the marks of verification, which somebody may have added since."""
    names = (path for path in folder.rglob("*") if path.is_file() and path.name not in (MARKS, MARKS + SIGNATURE))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in names}


def summarise(entries: Sequence[SubmittedRecord]) -> str:
    """The submission in Markdown: what there is, and the means over seeds of each point."""
    from tabulate import tabulate

    points: dict[str, list[Record]] = {}
    for entry in entries:
        points.setdefault(entry.record.id, []).append(entry.record)
    rows = [_row(records) for records in points.values()]
    kept = sum(entry.weights is not None for entry in entries)
    table = tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True)
    return (
        f"# Submission\n\nRecords: {len(entries)}, of {len(points)} points, {kept} with weights; "
        f"membench {__version__}.\nMeans over seeds. Check it with `membench verify`.\n\n{table}\n"
    )


def _row(records: Sequence[Record]) -> dict[str, str]:
    first = records[0]
    return {
        "task": _words(first.task),
        "protocol": _words(first.protocol),
        "model": _words(first.architecture),
        "seeds": str(len(records)),
        "parameters": _mean([record.size.get("parameters") for record in records], ",.0f"),
        "accuracy": _mean([record.metrics.get("accuracy") for record in records], ".4f"),
        "facts held": _mean([record.metrics.get("associations") for record in records], ",.0f"),
        "bits/param": _mean([record.metrics.get("bits_per_parameter") for record in records], ".2f"),
    }


def _words(part: dict[str, Any]) -> str:
    """Name and label."""
    return escape(f"{part['name']} {part.get('label') or ''}")


def _mean(values: Sequence[Any], form: str) -> str:
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    return format(sum(numbers) / len(numbers), form) if numbers else "-"
