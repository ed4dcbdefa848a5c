"""The compact form of records: what many of them have in common is stored once.

A file is lines of JSON. The first says the version of this form; then come the parts that records share, under
names made from their content, and then one line for each record, which names its parts. So a new record adds
lines and changes none, numbers keep all their digits, and the order depends on nothing but the records.

Only complete records are stored, without the curves of their training (`CURVES`); all else can be had back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from membench.errors import UsageError
from membench.records.record import Record
from membench.records.store import Entry

FORMAT = 2  # 1 held records of schema 1
SHARED = ("architecture", "task", "protocol", "size", "environment", "git")
CURVES = ("rounds", "bounded", "curve")
_LONG = 80  # characters of JSON from which on a part of a trace is worth a line of its own


def compact(records: Iterable[Record | Entry]) -> str:
    """The complete records as text, one line each; the same records always give the same text."""
    parts: dict[str, str] = {}
    lines = sorted((_place(entry), _line(entry, parts)) for entry in _complete(records))
    head = _dump({"membench-published": FORMAT})
    shared = [f'{{"part":"{name}","is":{text}}}' for name, text in sorted(parts.items())]
    return "\n".join([head, *shared, *(line for _, line in lines)]) + "\n"


def _complete(records: Iterable[Record | Entry]) -> Iterable[Entry]:
    found = (one if isinstance(one, Entry) else Entry(one) for one in records)
    return (entry for entry in found if entry.record.complete)


def _place(entry: Entry) -> tuple[str, str, int]:
    return str(entry.record.architecture["name"]), entry.record.id, entry.record.seed


def _line(entry: Entry, parts: dict[str, str]) -> str:
    data: dict[str, Any] = json.loads(entry.record.to_json())  # plain, and without NaN
    trace = {name: value for name, value in data.pop("trace").items() if name not in CURVES}
    bounds, values = _without_values(data.pop("bounds"))
    common = {name: _share(data.pop(name), parts) for name in SHARED}
    common["bounds"] = _share([_share(bound, parts) for bound in bounds], parts)
    common |= {f"trace.{name}": _share(value, parts) for name, value in trace.items() if len(_dump(value)) > _LONG}
    own = {name: value for name, value in data.items() if value is not None and name != "status"}
    own["trace"] = {name: value for name, value in trace.items() if f"trace.{name}" not in common}
    own["values"] = values
    if entry.verified:
        own["verified"] = True
    return _dump({**own, "parts": common})


def _without_values(bounds: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Bounds apart from their values, which alone differ between the seeds of a point."""
    pairs = [(dict(one), one.get("value")) if isinstance(one, Mapping) else (one, None) for one in bounds]
    for bound, _ in pairs:
        if isinstance(bound, dict) and "value" in bound:
            bound["value"] = None
    return [bound for bound, _ in pairs], [value for _, value in pairs]


def _share(value: Any, parts: dict[str, str]) -> str:
    text = _dump(value)
    name = hashlib.sha256(text.encode()).hexdigest()[:10]
    if parts.setdefault(name, text) != text:
        raise ValueError(f"two parts are called {name}")  # 40 bits: not in a lifetime of boards
    return name


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def expand(text: str, name: str) -> list[Entry]:
    """The records of a compact file, called `name` in errors."""
    try:
        head, *lines = (json.loads(line) for line in text.splitlines())
        if head["membench-published"] > FORMAT:
            raise UsageError(f"published file '{name}' was written by a newer membench; upgrade membench")
        parts = {line["part"]: line["is"] for line in lines if "part" in line}
        return [_entry(line, parts, name) for line in lines if "part" not in line]
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"published file '{name}' is damaged ({type(error).__name__}: {error})") from None


def _entry(line: dict[str, Any], parts: Mapping[str, Any], name: str) -> Entry:
    common = line.pop("parts")
    trace = {key.removeprefix("trace."): parts[part] for key, part in common.items() if key.startswith("trace.")}
    data = {
        "status": "complete",
        **{key: parts[common[key]] for key in SHARED},
        "bounds": _with_values([parts[part] for part in parts[common["bounds"]]], line.pop("values")),
        "trace": {**line.pop("trace"), **trace},
    }
    verified = line.pop("verified", False)
    return Entry(Record.from_data({**line, **data}), f"published/{name}", published=True, verified=verified)


def _with_values(bounds: Iterable[Any], values: Iterable[Any]) -> list[Any]:
    return [
        {**bound, "value": value} if isinstance(bound, dict) and "value" in bound else bound
        for bound, value in zip(bounds, values, strict=True)
    ]
