"""Pack: many records as one file, in which what they have in common is stored once.

A pack is lines of JSON, and is read line by line. The first says the version of this form. Then come the parts that
records share, under names made from their content; then one line for each record, which names its parts, followed by a
line with the curves of its training, so that whoever needs no curves can skip it unread; and at last how many records
there are, so that a copy that was cut short is noticed. Numbers keep all their digits, all of a record can be had
back, and the order depends on nothing but the records.
"""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from membench.records.files import open_regular, write_named
from membench.records.record import MAX_DEPTH, Record, check_plain, read_json
from membench.records.sharing import PARTS

SUFFIX = ".jsonl"
FORMAT = 3  # 1 held records of schema 1; 2 had neither failed records nor curves, nor a last line
HEAD, OLD_HEAD = "membench-records", "membench-published"
CURVES = ("rounds", "bounded", "curve")  # of a trace
_CURVES_LINE = b'{"curves":'
_END_LINE = b'{"records":'
_LONG = 80  # characters of JSON from which on a part of a trace is worth a line of its own
MAX_LINE = 64 << 20  # bytes


class Packed(NamedTuple):
    """A record of a pack."""

    record: Record
    verified: bool = False  # whoever wrote the pack says so
    line: int = 0


class Damaged(NamedTuple):
    """A line of a pack that is not what it should be."""

    line: int
    reason: str


class NotAPack(ValueError):
    """A file that is no pack, or one of a newer membench; the text says why, without the name of the file."""


def write_pack(path: Path, records: Iterable[Packed]) -> None:
    """Whole or not at all."""
    write_named(path, (f"{line}\n".encode() for line in pack(records)))


def pack(records: Iterable[Packed]) -> Iterator[str]:
    """The lines of a pack; the same records always give the same lines."""
    parts = _Parts()
    lines = sorted((_place(one.record), *_lines(one, parts)) for one in records)
    yield _dump({HEAD: FORMAT})
    for name, text in sorted(parts.texts.items()):
        yield f'{{"part":"{name}","is":{text}}}'
    for _, line, curves in lines:
        yield line
        if curves:
            yield curves
    yield _dump({"records": len(lines)})


def _place(record: Record) -> tuple[str, str, str, int]:
    return str(record.task["name"]), str(record.architecture["name"]), record.id, record.seed


class _Parts:
    """What records share, by names made from its content."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._names: dict[bytes, str] = {}  # by a form that is quicker to make than text

    def share(self, value: Any) -> str:
        key = marshal.dumps(value, 2)
        if key not in self._names:
            text = _dump(value)
            self._names[key] = name = hashlib.sha256(text.encode()).hexdigest()[:10]
            if self.texts.setdefault(name, text) != text:
                raise RuntimeError(f"two parts are called {name}")  # 40 bits: not in a lifetime of boards
        return self._names[key]


def _lines(one: Packed, parts: _Parts) -> tuple[str, str]:
    """The line of a record and that of its curves, which is empty if it has none."""
    record = replace(one.record, more={})
    try:
        return _lines_of(one, record.to_data(), parts)
    except ValueError:  # a number that JSON has not; no record that was read has one
        return _lines_of(one, record.to_plain(), parts)


def _lines_of(one: Packed, data: dict[str, Any], parts: _Parts) -> tuple[str, str]:
    trace = dict(data.pop("trace"))
    curves = {name: trace.pop(name) for name in CURVES if name in trace}
    bounds, values = _without_values(data.pop("bounds"))
    common = {name: parts.share(data.pop(name)) for name in PARTS}
    common["bounds"] = parts.share([parts.share(bound) for bound in bounds])
    common |= {f"trace.{name}": parts.share(value) for name, value in trace.items() if len(_dump(value)) > _LONG}
    own = {name: value for name, value in data.items() if value is not None and (name, value) != ("status", "complete")}
    own["trace"] = {name: value for name, value in trace.items() if f"trace.{name}" not in common}
    own["values"] = values
    if one.record.more:
        own["more"] = one.record.more  # apart, so that none of them is taken for one of ours
    if one.verified:
        own["verified"] = True
    return _dump({**own, "parts": common}), _dump({"curves": curves}) if curves else ""


def _without_values(bounds: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Bounds apart from their values, which alone differ between the seeds of a point."""
    pairs = [(dict(one), one.get("value")) if isinstance(one, Mapping) else (one, None) for one in bounds]
    for bound, _ in pairs:
        if isinstance(bound, dict) and "value" in bound:
            bound["value"] = None
    return [bound for bound, _ in pairs], [value for _, value in pairs]


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _dump(value: Any) -> str:
    return _ENCODER.encode(value)


def read_pack(path: Path, *, curves: bool = True) -> Iterator[Packed | Damaged]:
    """The records of a pack, one after the other, and what is wrong with it; without curves if they can be spared.

    Records share what they have in common. Raises NotAPack, or NotAFile for what is no regular file.
    """
    with open_regular(path) as file:
        yield from unpack(iter(lambda: file.readline(MAX_LINE), b""), curves=curves)


def unpack(lines: Iterator[bytes], *, curves: bool = True) -> Iterator[Packed | Damaged]:
    """The same from the lines themselves."""
    form, reader = _form(next(lines, b"")), _Reader()
    count, ended, held = 0, form < 3, None  # the record whose curves may follow
    for number, line in enumerate(lines, start=2):
        if line.startswith(_CURVES_LINE):
            if curves and held is not None:
                held = _with_curves(held, line, number)
            continue
        if held is not None:
            yield held
        held = None
        if ended and form >= 3:
            yield Damaged(number, "it comes after the last line of the pack")
        elif line.startswith(_END_LINE):
            ended = True
            if (told := _told(line)) != count:
                yield Damaged(number, f"the pack has {count:,} records, and was written with {told:,}")
        else:
            held = reader.read(line, number)
            count += held is not None
    if held is not None:
        yield held
    if not ended:
        yield Damaged(0, f"the pack was cut short after {count:,} records: it has no last line")


def _form(line: bytes) -> int:
    try:
        head = read_json(line.decode())
        form = head[HEAD] if HEAD in head else head[OLD_HEAD]
        if type(form) is not int or form < 1:
            raise ValueError(form)
    except (ValueError, TypeError, KeyError):
        raise NotAPack("it is not a pack of records") from None
    if form > FORMAT:
        raise NotAPack("it was written by a newer membench; upgrade membench")
    return form


def _told(line: bytes) -> int:
    try:
        told = read_json(line.decode())["records"]
        return told if type(told) is int else -1
    except (ValueError, TypeError, KeyError):
        return -1


def _with_curves(held: Packed | Damaged, line: bytes, number: int) -> Packed | Damaged:
    if isinstance(held, Damaged):
        return held
    try:
        found = read_json(line.decode())["curves"]
        check_plain(found, MAX_DEPTH - 2)
        if not isinstance(found, dict) or not set(found) <= set(CURVES):
            raise ValueError("these are no curves")
        return held._replace(record=replace(held.record, trace={**held.record.trace, **found}))
    except ValueError as error:
        return Damaged(number, str(error))


@dataclass
class _Reader:
    """The parts so far. What is shared is read, checked and held once."""

    parts: dict[str, Any] = field(default_factory=dict)
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)  # bound by the name of its part: with a value

    def read(self, text: bytes, number: int) -> Packed | Damaged | None:
        """None for a part."""
        try:
            line = read_json(text.decode())
            check_plain(line, MAX_DEPTH - 2)
            if "part" in line:
                if self.parts.setdefault(line["part"], line["is"]) != line["is"]:
                    raise ValueError(f"two parts are called {line['part']!r}")
                return None
            return self._packed(line, number)
        except KeyError as error:
            return Damaged(number, f"it lacks {error}")
        except (ValueError, TypeError, AttributeError) as error:
            return Damaged(number, str(error))

    def _packed(self, line: dict[str, Any], number: int) -> Packed:
        common, parts = line.pop("parts"), self.parts
        trace = line.pop("trace")
        for key, part in common.items():
            if key.startswith("trace."):
                trace[key[6:]] = parts[part]
        data = {key: parts[common[key]] for key in PARTS}
        data["bounds"] = self._bounds(parts[common["bounds"]], line.pop("values"))
        verified = line.pop("verified", False) is True
        whole = {"status": "complete", **line.pop("more", {}), **line, **data, "trace": trace}
        return Packed(Record.from_plain(whole), verified, number)

    def _bounds(self, names: list[str], values: list[Any]) -> list[Any]:
        """Seeds of one point come together, and most bounds are the same for all of them: those are held once."""
        found = []
        for name, value in zip(names, values, strict=True):
            bound = self.latest.get(name)
            if bound is None or bound["value"] != value or type(bound["value"]) is not type(value):
                template = self.parts[name]
                if not isinstance(template, dict) or "value" not in template:
                    found.append(template)
                    continue
                bound = self.latest[name] = {**template, "value": value}
            found.append(bound)
        return found
