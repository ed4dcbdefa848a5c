"""What is published, as text: a pack of the complete records, without the curves of their training."""

from __future__ import annotations

from collections.abc import Iterable

from membench.errors import UsageError
from membench.records.pack import Damaged, NotAPack, Packed, pack, unpack
from membench.records.record import Record
from membench.records.store import Entry, without_curves


def compact(records: Iterable[Record | Entry]) -> str:
    """The complete records; the same records always give the same text."""
    found = (one if isinstance(one, Entry) else Entry(one) for one in records)
    complete = (Packed(without_curves(one.record), one.verified) for one in found if one.record.complete)
    return "\n".join(pack(complete)) + "\n"


def expand(text: str, name: str) -> list[Entry]:
    """The records of a published file, called `name` in errors. UsageError unless all of it can be read."""
    found = []
    try:
        for one in unpack(iter(text.encode().splitlines())):
            if isinstance(one, Damaged):
                raise UsageError(f"published file '{name}' is damaged (line {one.line}: {one.reason})")
            found.append(Entry(one.record, f"published/{name}", published=True, verified=one.verified))
    except NotAPack as error:
        raise UsageError(f"published file '{name}' cannot be read: {error}") from None
    return found
