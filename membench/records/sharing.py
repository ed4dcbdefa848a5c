"""Sharing: what records have in common is held in memory once, so that a hundred thousand of them fit."""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from membench.records.record import Record

PARTS = ("architecture", "task", "protocol", "size", "environment", "git")


class Sharing:
    """Gives back each record with the parts of an earlier one where those are the same."""

    def __init__(self) -> None:
        self._parts: dict[bytes, Any] = {}
        self._bounds: Sequence[Any] = ()  # of the record before: seeds of one point come together, and share most

    def of(self, record: Record) -> Record:
        parts = {name: self._part(getattr(record, name)) for name in PARTS}
        before = self._bounds
        self._bounds = [
            before[place] if place < len(before) and before[place] == bound else bound
            for place, bound in enumerate(record.bounds)
        ]
        return replace(record, **parts, bounds=self._bounds)

    def _part(self, value: Any) -> Any:
        # not by equality, for which 1 and 1.0 are one; version 2, in which equal values have equal bytes
        return self._parts.setdefault(marshal.dumps(value, 2), value)
